"""Model servers: one adapter a file over one contract; what they say is evidence."""
