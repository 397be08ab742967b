"""Braid: streaming SQL joins on Spark."""
