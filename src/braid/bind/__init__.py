"""What statements mean: from the syntax tree to a logical plan. Behind this room nobody knows which SQL was written."""
