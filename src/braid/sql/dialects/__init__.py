"""The words of each dialect. Which there are: `braid.bind.dialects`."""
