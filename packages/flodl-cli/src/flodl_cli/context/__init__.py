"""What one call of fdl knows before it looks at any command."""
