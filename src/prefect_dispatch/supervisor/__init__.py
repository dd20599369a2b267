"""The record and advance: the one loop over record and scheduler. Knows no Prefect."""
