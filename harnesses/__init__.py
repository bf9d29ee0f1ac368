"""What is compared: the arms of a study, as pure code. No log, clock, network or disk.

contract     what passes between an arm and the engine that runs it: read this first
h000_…       exact, substring and regular-expression search: the baseline
h018_…       the oracle: H000's tools and the names of the gold production files
answers      reading a model's reply, by the same rules for every arm
tools/       the tools of the interactive arms, and the workspace that they change
retrieval/   methods of search over a snapshot, without budgets or output limits
prompts/     what the arms say, one file a message
registry     the arms by id, and the digests that are part of their identity
"""
