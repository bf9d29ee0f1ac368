"""The vocabulary of transfer studies: corrections, families, their study file."""
