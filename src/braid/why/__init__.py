"""Why a row is missing: the definitions, asked about the records that a query has read."""
