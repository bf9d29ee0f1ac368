"""The languages of repositories under study: one record each, all that depends on the language.

Read :mod:`actors.languages.contract` first. The miner and the grader ask a record and name no test
runner, package manager or file suffix themselves.
"""
