# User documentation.
