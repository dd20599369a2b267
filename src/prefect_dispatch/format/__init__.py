"""The formats: names, documents and messages, pure. Knows no clock and no file; standard library, Python 3.9."""
