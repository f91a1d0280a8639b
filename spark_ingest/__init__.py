"""PySpark ingestion of hub streams into a lakehouse."""
