"""The words of each dialect. Which there are: `braid.dialects`."""
