"""What people look at: histories, tables and timelines, from records and roots. Draws; knows no Prefect."""
