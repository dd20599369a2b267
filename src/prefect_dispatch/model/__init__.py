"""The model: job specs, facts, what they fold to and what follows. Pure; knows no clock, no file and no Prefect."""
