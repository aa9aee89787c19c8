"""A small server on loopback that speaks as much of the Hub's protocol as a push and a load need.

Repositories live in memory. Every commit is a snapshot, so that old revisions still resolve. Large files (safetensors
and pictures) go through the LFS protocol, as on the Hub. Writing needs `TOKEN`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "hf_" + "loopbackloopbackloopback"  # in two parts, so that no scanner takes it for a real one
LARGE = (".safetensors", ".png", ".whl", ".parquet")
_TYPES = {"models": "model", "datasets": "dataset", "spaces": "space"}
_REPO = r"(?P<repo>[^/]+/[^/]+)"


def git_blob_oid(content: bytes) -> str:
    """SHA-1 of a blob as git counts it."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repo:
    """One repository.

    Attributes:
        private (`bool`): as asked for at creation.
        sdk (`str`, *optional*): of a Space.
        revisions (`dict[str, dict[str, bytes]]`): commit -> path -> content; the last one is `main`.
        messages (`list[str]`): of the commits.
        branches (`dict[str, str]`): beside `main`: name -> commit.
        elsewhere (`set[str]`): commits that are not `main`'s.
    """

    private: bool = False
    sdk: str | None = None
    revisions: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"0" * 40: {}})
    messages: list[str] = field(default_factory=list)
    branches: dict[str, str] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)

    @property
    def head(self) -> str:
        return [commit for commit in self.revisions if commit not in self.elsewhere][-1]

    def commit_of(self, revision: str | None) -> str | None:
        """Of a branch, or the commit itself; `None` if there is none."""
        if revision in (None, "main"):
            return self.head
        commit = self.branches.get(revision, revision)
        return commit if commit in self.revisions else None

    @property
    def files(self) -> dict[str, bytes]:
        return self.revisions[self.head]


class FakeHub(ThreadingHTTPServer):
    """The server; see the module.

    Attributes:
        repos (`dict[tuple[str, str], Repo]`): by kind ("model", "dataset", "space") and id.
        uploads (`list[str]`): SHA-256 of every large file that was sent, in order.
        fail_next (`list[tuple[str, int]]`): for each entry, the next request whose path contains the text is answered
            with that status.
        requests (`list[tuple[str, str]]`): method and path of all requests.
        collections (`dict[str, dict]`): by slug, as the Hub answers.
        longest_title (`int`, *optional*): of a collection. That of the Hub is written nowhere.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[tuple[str, str], Repo] = {}
        self.blobs: dict[str, bytes] = {}
        self.uploads: list[str] = []
        self.fail_next: list[tuple[str, int]] = []
        self.requests: list[tuple[str, str]] = []
        self.collections: dict[str, dict] = {}
        self.longest_title: int | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def environment(self, cache) -> dict[str, str]:
        """Variables for a process that is to take this server for the Hub, with a cache folder of its own."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(cache),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_OFFLINE": "0",
            "TRANSFORMERS_OFFLINE": "0",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }


@contextmanager
def fake_hub():
    """A running [`FakeHub`]."""
    server = FakeHub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def hub_of_this_process(monkeypatch):
    """A running [`FakeHub`] that `huggingface_hub` takes for the Hub in this process."""
    from huggingface_hub import constants

    with fake_hub() as server:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeHub

    def log_message(self, *args):
        pass

    def do_GET(self):
        self._serve()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_GET

    def _serve(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append((self.command, path))
        for entry in self.server.fail_next:
            if entry[0] in path:
                self.server.fail_next.remove(entry)
                return self._json({"error": "broken on purpose"}, entry[1])
        for method, pattern, answer in _ROUTES:
            if self.command in method and (match := re.fullmatch(pattern, path)):
                found = match.groupdict()
                if "kind" in found:
                    found["kind"] = _TYPES[found["kind"] or "models"]
                return answer(self, **found)
        return self._json({"error": f"no route for {self.command} {path}"}, 404)

    def _send(self, content: bytes, status: int = 200, **headers: str):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _json(self, value, status: int = 200, **headers: str):
        self._send(json.dumps(value).encode(), status, Content_Type="application/json", **headers)

    def _refuse(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {TOKEN}":
            return False
        self._json({"error": "Invalid username or password."}, 401)
        return True

    def _repo(self, kind: str, repo: str) -> Repo | None:
        found = self.server.repos.get((kind, repo))
        if found is None or (found.private and self.headers.get("Authorization") != f"Bearer {TOKEN}"):
            self._json({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            return None
        return found

    def whoami(self):
        if not self._refuse():
            self._json({"type": "user", "name": "someone", "orgs": [], "auth": {"accessToken": {"role": "write"}}})

    def validate(self):
        import yaml

        content = json.loads(self.body)["content"]
        head = re.match(r"---\n(.*?)\n---", content, re.S)
        metadata = yaml.safe_load(head[1]) if head else {}
        errors = [{"message": f'"{key}" must not be empty'} for key, value in metadata.items() if value in (None, "")]
        for entry in metadata.get("model-index") or []:
            for result in entry.get("results", []):
                kind = result.get("dataset", {}).get("type", "")
                if not re.fullmatch(r"[\w./-]+", kind):
                    errors.append({"message": f'"model-index" has the dataset type {kind!r}'})
                for metric in result.get("metrics", []):
                    if not isinstance(metric.get("value"), (int, float)) or metric["value"] != metric["value"]:
                        errors.append({"message": f'"model-index" has the value {metric.get("value")!r}'})
        self._json({"errors": errors, "warnings": []}, 400 if errors else 200)

    def create(self):
        if self._refuse():
            return
        asked = json.loads(self.body)
        key = (asked.get("type") or "model", f"{asked.get('organization') or 'someone'}/{asked['name']}")
        url = f"{self.server.endpoint}/{'' if key[0] == 'model' else key[0] + 's/'}{key[1]}"
        if key in self.server.repos:
            return self._json({"error": "You already created this repo", "url": url}, 409)
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        self.server.repos[key] = Repo(private, asked.get("sdk"))
        self._json({"url": url, "name": key[1], "id": key[1]})

    def may_write(self, kind: str, repo: str):
        if not self._refuse() and self._repo(kind, repo):
            self._json({})

    def info(self, kind: str, repo: str, revision: str | None = None):
        if found := self._repo(kind, repo):
            commit = found.commit_of(revision)
            if commit is None:
                return self._json({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
            siblings = [{"rfilename": path} for path in found.revisions[commit]]
            self._json(
                {"id": repo, "sha": commit, "private": found.private, "siblings": siblings, "tags": [], "downloads": 0}
            )

    def tree(self, kind: str, repo: str, revision: str, folder: str | None = None):
        if not (found := self._repo(kind, repo)):
            return
        if (commit := found.commit_of(revision)) is None:
            return self._json({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
        files = found.revisions[commit]
        prefix = f"{folder.strip('/')}/" if folder and folder.strip("/") else ""
        recursive = "true" in parse_qs(urlsplit(self.path).query.lower()).get("recursive", [])
        entries = []
        for path, content in files.items():
            if path.startswith(prefix) and (recursive or "/" not in path[len(prefix) :]):
                entry = {"type": "file", "path": path, "size": len(content), "oid": git_blob_oid(content)}
                if path.endswith(LARGE):
                    sha = hashlib.sha256(content).hexdigest()
                    entry["lfs"] = {"oid": sha, "size": len(content), "pointerSize": 130}
                entries.append(entry)
        self._json(entries)

    def preupload(self, kind: str, repo: str, revision: str):
        if self._refuse() or not (found := self._repo(kind, repo)):
            return
        answer, files = [], found.revisions[found.commit_of(revision)]
        for file in json.loads(self.body)["files"]:
            large = file["path"].endswith(LARGE)
            content = files.get(file["path"])
            oid = None
            if content is not None:
                oid = hashlib.sha256(content).hexdigest() if large else git_blob_oid(content)
            answer.append(
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if large else "regular",
                    "shouldIgnore": False,
                    "oid": oid,
                }
            )
        self._json({"files": answer})

    def lfs_batch(self, kind: str, repo: str):
        if self._refuse():
            return
        objects = []
        for wanted in json.loads(self.body)["objects"]:
            entry = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.server.blobs:
                href = f"{self.server.endpoint}/lfs/{wanted['oid']}"
                entry["actions"] = {"upload": {"href": href, "header": {}}}
            objects.append(entry)
        self._json({"transfer": "basic", "objects": objects})

    def lfs_put(self, oid: str):
        if hashlib.sha256(self.body).hexdigest() != oid:
            return self._json({"error": "another content"}, 400)
        self.server.uploads.append(oid)
        self.server.blobs[oid] = self.body
        self._send(b"")

    def commit(self, kind: str, repo: str, revision: str):
        if self._refuse() or not (found := self._repo(kind, repo)):
            return
        files, message = dict(found.revisions[found.commit_of(revision)]), ""
        for line in self.body.splitlines():
            entry = json.loads(line)
            key, value = entry["key"], entry["value"]
            if key == "header":
                message = value["summary"]
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]
            elif key == "deletedFolder":
                files = {path: content for path, content in files.items() if not path.startswith(value["path"])}
        commit = hashlib.sha1(f"{len(found.revisions)} {message} {sorted(files)}".encode()).hexdigest()
        found.revisions[commit] = files
        if revision != "main":
            found.branches[revision] = commit
            found.elsewhere.add(commit)
        found.messages.append(message)
        url = f"{self.server.endpoint}/{repo}/commit/{commit}"
        self._json({"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})

    def resolve(self, kind: str, repo: str, revision: str, path: str):
        if not (found := self._repo(kind, repo)):
            return
        commit = found.commit_of(revision)
        if commit is None:
            return self._json({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
        content = found.revisions[commit].get(path)
        if content is None:
            return self._json({"error": "Entry not found"}, 404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        etag = hashlib.sha256(content).hexdigest() if path.endswith(LARGE) else git_blob_oid(content)
        self._send(content, ETag=f'"{etag}"', X_Repo_Commit=commit, Accept_Ranges="bytes")

    def new_branch(self, kind: str, repo: str, branch: str):
        if self._refuse() or not (found := self._repo(kind, repo)):
            return
        if branch == "main" or branch in found.branches:
            return self._json({"error": "Reference already exists"}, 409)
        found.branches[branch] = found.head
        self._json({})

    def new_collection(self):
        if self._refuse():
            return
        asked = json.loads(self.body)
        if len(asked.get("description", "")) > 150:
            return self._json({"error": "description: too long"}, 400)
        longest = self.server.longest_title
        if longest is not None and len(asked["title"]) > longest:
            return self._json({"error": f"✖ Too big: expected string to have <={longest} characters → at title"}, 400)
        for slug, held in self.server.collections.items():
            if (held["owner"], held["title"]) == (asked["namespace"], asked["title"]):
                return self._json({"error": "You already created this collection", "slug": slug}, 409)
        words = re.sub(r"[^a-z0-9]+", "-", asked["title"].lower()).strip("-")
        slug = f"{asked['namespace']}/{words}-{len(self.server.collections):024x}"
        fixed = {"items": [], "lastUpdated": "2026-01-01T00:00:00.000Z", "position": 0, "theme": "blue", "upvotes": 0}
        self.server.collections[slug] = {**fixed, **asked, "slug": slug, "owner": asked.pop("namespace")}
        self._json(self.server.collections[slug])

    def collection(self, slug: str):
        held = self.server.collections.get(slug)
        if held is None:
            return self._json({"error": "Collection not found"}, 404)
        if self.command == "GET":
            return self._json(held)
        if not self._refuse():
            held.update(json.loads(self.body))
            self._json({"success": True, "data": held})

    def new_item(self, slug: str):
        if self._refuse():
            return
        asked, held = json.loads(self.body), self.server.collections[slug]
        kind, name = asked["item"]["type"], asked["item"]["id"]
        if (kind, name) not in self.server.repos:
            return self._json({"error": "Repository not found"}, 404)
        if any((item["type"], item["id"]) == (kind, name) for item in held["items"]):
            return self._json({"error": "already there"}, 409)
        note = {"note": {"html": asked["note"], "text": asked["note"]}} if asked.get("note") else {}
        position = len(held["items"])
        held["items"].append({"_id": f"{position:024x}", "id": name, "type": kind, "position": position, **note})
        self._json(held)

    def item(self, slug: str, item: str):
        if self._refuse():
            return
        found = next(one for one in self.server.collections[slug]["items"] if one["_id"] == item)
        note = json.loads(self.body)["note"]
        found["note"] = {"html": note, "text": note}
        self._json({"success": True})


_KIND = r"(?:(?P<kind>datasets|spaces)/)?"
_API = r"/api/(?P<kind>models|datasets|spaces)/" + _REPO
_COLLECTION = r"/api/collections/(?P<slug>[^/]+/[^/]+)"
_ROUTES = (
    (("GET",), r"/api/whoami-v2", _Handler.whoami),
    (("POST",), r"/api/validate-yaml", _Handler.validate),
    (("POST",), r"/api/repos/create", _Handler.create),
    (("GET",), _API, _Handler.info),
    (("POST",), _API + r"/branch/(?P<branch>.+)", _Handler.new_branch),
    (("GET",), _API + r"/auth-check/write", _Handler.may_write),
    (("GET",), _API + r"/revision/(?P<revision>[^/]+)", _Handler.info),
    (("GET",), _API + r"/tree/(?P<revision>[^/]+)(?P<folder>/.*)?", _Handler.tree),
    (("POST",), _API + r"/preupload/(?P<revision>[^/]+)", _Handler.preupload),
    (("POST",), _API + r"/commit/(?P<revision>[^/]+)", _Handler.commit),
    (("POST",), "/" + _KIND + _REPO + r"\.git/info/lfs/objects/batch", _Handler.lfs_batch),
    (("POST",), r"/api/collections", _Handler.new_collection),
    (("GET", "PATCH"), _COLLECTION, _Handler.collection),
    (("POST",), _COLLECTION + "/items", _Handler.new_item),
    (("PATCH",), _COLLECTION + "/items/(?P<item>[^/]+)", _Handler.item),
    (("PUT",), r"/lfs/(?P<oid>[0-9a-f]{64})", _Handler.lfs_put),
    (("GET", "HEAD"), "/" + _KIND + _REPO + r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)", _Handler.resolve),
)
