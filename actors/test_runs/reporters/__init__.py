"""What runs inside a test process and reports from there, and the strict reading of its reports."""
