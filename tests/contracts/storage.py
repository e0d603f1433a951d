"""What every storage keeps to, as tests: subclass, and give a `root` (and a `base` to put before its keys)."""

import hashlib
from base64 import b64encode

import pytest

from stoker.errors import NotFoundError
from stoker.storage.object_store import Folder, ObjectStore, PreconditionError, StoredObject

LARGE = bytes(range(256)) * 12_000  # three megabytes: several chunks of a copy


def put(root: ObjectStore, key: str, data: bytes, **options: object) -> StoredObject:
    draft = root.draft(key)
    draft.write(data)
    return root.commit(key, draft, **options)  # type: ignore[arg-type]


def read(root: ObjectStore, key: str) -> bytes:
    with root.open(key) as file:
        return file.read()


def keys(root: ObjectStore, base: str, prefix: str = "", **options: object) -> list[str]:
    found = root.list(base + prefix, **options)  # type: ignore[arg-type]
    return [item.key.removeprefix(base) for item in found]


def refuse(current: StoredObject | None) -> None:
    raise PreconditionError("no")


class StorageContract:
    keeps_attributes = True
    keeps_odd_keys = True

    @pytest.fixture
    def base(self) -> str:
        return ""

    def test_object_is_read_as_it_was_written(self, root: ObjectStore, base: str) -> None:
        made = put(root, f"{base}folder/data.bin", LARGE)

        found = root.stat(f"{base}folder/data.bin")
        assert found is not None
        assert read(root, found.key) == LARGE
        assert (found.size, found.generation) == (len(LARGE), made.generation)
        assert made.md5 == b64encode(hashlib.md5(LARGE).digest()).decode()
        assert found.md5 in ("", made.md5)

    def test_empty_object_is_an_object(self, root: ObjectStore, base: str) -> None:
        put(root, f"{base}empty", b"")

        assert read(root, f"{base}empty") == b""
        assert keys(root, base) == ["empty"]

    def test_part_of_an_object_is_read_by_seeking(self, root: ObjectStore, base: str) -> None:
        put(root, f"{base}data", LARGE)

        with root.open(f"{base}data") as file:
            file.seek(1_000_003)
            assert file.read(5) == LARGE[1_000_003:1_000_008]

    def test_missing_object_is_not_there(self, root: ObjectStore, base: str) -> None:
        put(root, f"{base}folder/data", b"x")

        assert root.stat(f"{base}missing") is None
        assert root.stat(f"{base}folder") is None
        with pytest.raises(NotFoundError, match="missing"):
            root.open(f"{base}missing").read()
        with pytest.raises(NotFoundError, match="missing"):
            root.remove(f"{base}missing")

    def test_draft_is_seen_by_nobody_until_committed(self, root: ObjectStore, base: str) -> None:
        put(root, f"{base}data", b"old")
        draft = root.draft(f"{base}data")
        other = root.draft(f"{base}new")
        draft.write(b"half")
        other.write(b"half")

        assert read(root, f"{base}data") == b"old"
        assert keys(root, base) == ["data"]

        other.discard()
        root.commit(f"{base}data", draft)
        assert read(root, f"{base}data") == b"half"
        assert keys(root, base) == ["data"]

    def test_draft_that_was_left_is_taken_up_again(self, root: ObjectStore, base: str) -> None:
        draft = root.draft(f"{base}data", resume="job 1")
        draft.write(b"first ")
        draft.close()

        again = root.draft(f"{base}data", resume="job 1")
        assert again.size == len(b"first ")
        again.write(b"second")
        made = root.commit(f"{base}data", again)

        assert read(root, f"{base}data") == b"first second"
        assert made.md5 == b64encode(hashlib.md5(b"first second").digest()).decode()
        fresh = root.draft(f"{base}data", resume="job 1")
        assert fresh.size == 0
        fresh.discard()

    def test_draft_in_use_is_not_shared(self, root: ObjectStore, base: str) -> None:
        one = root.draft(f"{base}data", resume="job 1")
        other = root.draft(f"{base}data", resume="job 1")

        one.write(b"one")
        other.write(b"other")
        root.commit(f"{base}data", one)

        assert read(root, f"{base}data") == b"one"
        other.discard()

    def test_every_write_has_another_generation(self, root: ObjectStore, base: str) -> None:
        generations = [put(root, f"{base}data", data).generation for data in (b"a", b"b", b"c")]

        assert len(set(generations)) == 3

    def test_refused_commit_changes_nothing(self, root: ObjectStore, base: str) -> None:
        before = put(root, f"{base}data", b"old")
        draft = root.draft(f"{base}data")
        draft.write(b"new")

        with pytest.raises(PreconditionError):
            root.commit(f"{base}data", draft, check=refuse)
        draft.discard()

        assert read(root, f"{base}data") == b"old"
        found = root.stat(f"{base}data")
        assert found is not None
        assert found.generation == before.generation

    def test_check_is_given_what_is_there(self, root: ObjectStore, base: str) -> None:
        seen: list[StoredObject | None] = []
        put(root, f"{base}data", b"one", check=seen.append)
        put(root, f"{base}data", b"three", check=seen.append)
        root.remove(f"{base}data", check=seen.append)

        assert [None if found is None else found.size for found in seen] == [None, 3, 5]

    def test_removed_object_is_gone(self, root: ObjectStore, base: str) -> None:
        put(root, f"{base}folder/a", b"a")
        put(root, f"{base}folder/b", b"b")

        root.remove(f"{base}folder/a")

        assert root.stat(f"{base}folder/a") is None
        assert keys(root, base) == ["folder/b"]

    def test_listing_is_in_order_of_keys(self, root: ObjectStore, base: str) -> None:
        names = ["a.txt", "a/b", "a/b.c/d", "a/b0", "aa", "b"]
        for name in reversed(names):
            put(root, base + name, b"x")

        assert keys(root, base) == sorted(names)
        assert keys(root, base, "a/") == ["a/b", "a/b.c/d", "a/b0"]
        assert keys(root, base, "a/b.") == ["a/b.c/d"]
        assert keys(root, base, "a") == ["a.txt", "a/b", "a/b.c/d", "a/b0", "aa"]
        assert keys(root, base, "nothing/") == []

    def test_listing_of_folders_shows_one_level(self, root: ObjectStore, base: str) -> None:
        for name in ("a.txt", "a/b", "a/c/d", "e"):
            put(root, base + name, b"x")

        assert keys(root, base, folders=True) == ["a.txt", "a/", "e"]
        assert keys(root, base, "a/", folders=True) == ["a/b", "a/c/"]
        found = {item.key.removeprefix(base): type(item) for item in root.list(base, folders=True)}
        assert found == {"a.txt": StoredObject, "a/": Folder, "e": StoredObject}

    @pytest.mark.parametrize("folders", [True, False])
    def test_listing_goes_on_behind_a_key(self, root: ObjectStore, base: str, folders: bool) -> None:
        for name in ("a", "b/1", "b/2", "b.", "c"):
            put(root, base + name, b"x")
        whole = keys(root, base, folders=folders)

        for at, key in enumerate(whole):
            assert keys(root, base, folders=folders, after=base + key) == whole[at + 1 :]

    def test_key_may_have_any_characters(self, root: ObjectStore, base: str) -> None:
        names = ["a b", "a%20b", "ä/ö", "a?b", "a#b", "a+b", "a&b=c", "a'b\"c", "x:y", "[z]*"]
        for name in names:
            put(root, base + name, name.encode())

        assert keys(root, base) == sorted(names)
        for name in names:
            assert read(root, base + name) == name.encode()

    def test_key_that_is_no_path_is_kept_all_the_same(self, root: ObjectStore, base: str) -> None:
        if not self.keeps_odd_keys:
            pytest.skip("this storage is one of paths")
        names = ["a", "a/b", "dir/", "dir//x", "/lead", "../up", "./dot", ".stoker/lock", "n" * 300, "deep/" * 150]
        for name in names:
            put(root, name, name.encode())

        assert keys(root, "") == sorted(names)
        for name in names:
            assert read(root, name) == name.encode()
        for name in names:
            root.remove(name)
        assert keys(root, "") == []

    def test_attributes_are_kept_with_the_object(self, root: ObjectStore, base: str) -> None:
        if not self.keeps_attributes:
            pytest.skip("this storage keeps bytes alone")
        given = {"contentType": "text/x-test", "metadata": {"epoch": "3"}}
        put(root, f"{base}data", b"x", attributes=given)

        found = root.stat(f"{base}data")
        assert found is not None
        assert {name: found.attributes.get(name) for name in given} == given

    def test_update_changes_attributes_alone(self, root: ObjectStore, base: str) -> None:
        if not self.keeps_attributes:
            pytest.skip("this storage keeps bytes alone")
        put(root, f"{base}data", b"bytes", attributes={"metadata": {"a": "1", "b": "2"}})

        root.update(f"{base}data", {"contentType": "text/x-other", "metadata": {"b": "3"}})

        found = root.stat(f"{base}data")
        assert found is not None
        assert found.attributes["metadata"] == {"b": "3"}
        assert found.attributes["contentType"] == "text/x-other"
        assert read(root, f"{base}data") == b"bytes"
        with pytest.raises(NotFoundError):
            root.update(f"{base}missing", {})

    def test_place_is_named_in_words(self, root: ObjectStore, base: str) -> None:
        assert root.where()
        assert root.exists()
