"""Real S3 servers for the tests, and what stands between them and a client."""
