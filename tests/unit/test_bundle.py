"""Bundles: the same files make the same archive, and a change counts where it matters and nowhere else."""

import io
import json
import subprocess
import tarfile

import pytest

from slipway.node import bundle
from slipway.node.slim import slim


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    files = {
        "playbooks/etcd.yml": "- hosts: etcd\n  roles: [host, etcd]\n",
        "playbooks/node.yml": "- hosts: nodes\n  roles:\n    - role: host\n    - role: kubelet\n",
        "playbooks/site.yml": "- import_playbook: etcd.yml\n- ansible.builtin.import_playbook: node.yml\n",
        "playbooks/library/slipway_files.py": "x = 1\n",
        "playbooks/controller/converge.yml": "- hosts: all\n",
        "roles/host/tasks/main.yml": "- name: One\n  ansible.builtin.debug:\n",
        "roles/etcd/tasks/main.yml": "- block:\n    - ansible.builtin.include_role:\n        name: pki\n",
        "roles/pki/tasks/main.yml": "[]\n",
        "roles/kubelet/tasks/main.yml": "[]\n",
        "roles/kubelet/meta/main.yml": "dependencies: [containerd]\n",
        "roles/containerd/tasks/main.yml": "[]\n",
        "roles/containerd/templates/config.toml.j2": "a\n",
    }
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    return tmp_path / "root"


def digests(root):
    return {name: bundle.playbook_digest(name, root) for name in ("etcd", "node", "site")}


def test_roles_are_found_through_blocks_dependencies_and_imports(root):
    assert bundle.playbook_roles("etcd", root) == ["etcd", "host", "pki"]
    assert bundle.playbook_roles("node", root) == ["containerd", "host", "kubelet"]
    assert bundle.playbook_roles("site", root) == ["containerd", "etcd", "host", "kubelet", "pki"]


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("roles/containerd/templates/config.toml.j2", {"node", "site"}),
        ("roles/pki/tasks/main.yml", {"etcd", "site"}),
        ("roles/host/tasks/main.yml", {"etcd", "node", "site"}),
        ("playbooks/library/slipway_files.py", {"etcd", "node", "site"}),
        ("playbooks/etcd.yml", {"etcd", "site"}),
        ("playbooks/controller/converge.yml", set()),
    ],
)
def test_a_change_counts_for_the_playbooks_that_use_it(root, file, changed):
    before = digests(root)
    (root / file).write_text((root / file).read_text() + "# changed\n")
    assert {name for name, digest in digests(root).items() if digest != before[name]} == changed


def test_archives_are_reproducible_and_made_once(root, monkeypatch):
    first = bundle.ensure(root)
    for file in root.rglob("*.yml"):
        file.touch()
    (root / "roles/host/tasks/.main.yml.swp").write_text("an editor's")
    monkeypatch.setattr(bundle, "pack", lambda _: pytest.fail("packed again"))
    assert bundle.ensure(root) == first


def test_a_lost_archive_is_made_again_with_the_same_digest(root):
    first = bundle.ensure(root).content
    subprocess.run(["rm", first.path], check=True)
    assert bundle.ensure(root).content == first
    assert subprocess.run(["sha256sum", first.path], capture_output=True, text=True).stdout.split()[0] == first.digest


def test_the_content_has_what_a_host_runs_and_nothing_of_the_controller(root):
    with tarfile.open(bundle.ensure(root).content.path) as archive:
        names = archive.getnames()
        index = json.load(archive.extractfile("index.json"))
        assert {member.mtime for member in archive.getmembers()} == {0}
        assert {member.uname for member in archive.getmembers()} == {""}
    assert {"slipway_node.py", "ansible.cfg", "slipway/node/host/run.py", "playbooks/etcd.yml"} < set(names)
    assert not [name for name in names if "controller/" in name or name.endswith((".pyc", ".swp"))]
    assert set(index["roles"]) == {"containerd", "etcd", "host", "kubelet", "pki"}


def test_the_runtime_is_pure_python_and_small(root):
    runtime = bundle.ensure(root).runtime
    with tarfile.open(runtime.path) as archive:
        names = archive.getnames()
    assert {"ansible/cli/playbook.py", "ansible_mitogen/strategy.py", "yaml/__init__.py", "jinja2/loaders.py"} < set(
        names
    )
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    assert not [name for name in names if name.startswith(("ansible/galaxy/", "ansible_test/"))]


@pytest.mark.parametrize(
    ("playbook", "text", "message"),
    [
        ("ectd", None, "playbooks/ectd.yml not found; known: etcd, node, site"),
        ("bad", "- hosts: all\n  roles: [nowhere]\n", "playbooks/bad.yml: role nowhere not found in roles/"),
        ("bad", "- hosts: [all\n", "not YAML"),
    ],
)
def test_what_is_wrong_with_a_playbook_is_one_line(root, playbook, text, message):
    if text:
        (root / "playbooks" / f"{playbook}.yml").write_text(text)
    with pytest.raises(bundle.BundleError, match=message) as error:
        bundle.playbook_digest(playbook, root)
    assert "\n" not in str(error.value)


def test_packing_depends_on_names_and_contents_only():
    one = bundle.pack({"b/c": b"2", "a": b"1"})
    assert one == bundle.pack({"a": b"1", "b/c": b"2"})
    with tarfile.open(fileobj=io.BytesIO(one)) as archive:
        assert archive.getnames() == ["b", "a", "b/c"]


def test_documentation_becomes_json_and_lines_keep_their_numbers():
    source = b'DOCUMENTATION = """\nname: x\noptions:\n  a: {default: yes}\n"""\nEXAMPLES = """\n- b\n"""\nx = 1\n'
    lean = slim("ansible/plugins/shell/x.py", source).decode()
    scope = {}
    exec(lean, scope)  # noqa: S102 - what Ansible does with it
    assert json.loads(scope["DOCUMENTATION"]) == {"name": "x", "options": {"a": {"default": True}}}
    assert scope["EXAMPLES"] == ""
    assert lean.splitlines().index("x = 1") == source.decode().splitlines().index("x = 1")
    assert slim("ansible/modules/x.py", source).decode().startswith("DOCUMENTATION = ''\n")
    assert slim("yaml/x.py", source) == source


def test_the_table_of_moved_plugins_keeps_versions_as_text():
    table = slim("ansible/config/ansible_builtin_runtime.yml", b"plugin:\n  removal_version: 2.20\n")
    assert json.loads(table) == {"plugin": {"removal_version": "2.20"}}
