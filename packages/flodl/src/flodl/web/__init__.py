"""The records of a run in a browser: HTTP, server-sent events, and one offline file."""
