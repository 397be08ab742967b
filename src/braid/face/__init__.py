"""What users call: the command line, the prompt, the session in Python."""
