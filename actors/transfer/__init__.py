"""Transfer studies: suites, sessions, corrections, remediation."""
