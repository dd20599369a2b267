"""Real processes that race for one name, and others that read beside them."""
