"""Secrets as a user has them, each with a mark: variables, and files in the home folder.

Every command of the end-to-end and fault tests runs with them. Nothing that a command prints or
writes may hold the mark.
"""

from pathlib import Path

MARK = "canary-b1946ac92492d234"

VARIABLES = {
    "LM_API_TOKEN": f"lm-{MARK}",
    "GITHUB_TOKEN": f"ghp_{MARK}",
    "AWS_SECRET_ACCESS_KEY": MARK,
    "OPENAI_API_KEY": f"sk-{MARK}",
    "DATABASE_URL": f"postgresql://user:{MARK}@127.0.0.1:9/study",
    "PIP_INDEX_URL": f"http://user:{MARK}@127.0.0.1:9/simple",
    "HTTP_PROXY": f"http://user:{MARK}@127.0.0.1:9",
    "https_proxy": f"http://user:{MARK}@127.0.0.1:9",
}

FILES = {
    ".netrc": f"machine example.org login user password {MARK}\n",
    ".git-credentials": f"https://user:{MARK}@example.org\n",
    ".gitconfig": f"[http]\n\textraHeader = Authorization: Bearer {MARK}\n"
    f"[user]\n\tname = {MARK}\n\temail = {MARK}@example.org\n",
    ".config/pip/pip.conf": f"[global]\nextra-index-url = http://user:{MARK}@127.0.0.1:9/simple\n",
    ".ssh/id_ed25519": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{MARK}\n",
}


def make_home(folder: Path) -> Path:
    """A home folder with these files; made once."""
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder
