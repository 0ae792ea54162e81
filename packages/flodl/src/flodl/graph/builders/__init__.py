"""What stands behind FlowBuilder: the draft of a flow, and how each kind of step extends it."""
