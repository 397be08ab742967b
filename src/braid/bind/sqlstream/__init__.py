"""What SQLstream's statements mean: bound to the plan nodes that all dialects share."""
