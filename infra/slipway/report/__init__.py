"""What a run did, host by host: kept as JSON and as a page that needs nothing but a browser."""
