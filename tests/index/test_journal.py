"""What is extracted of an unfinished index: kept photo by photo, and taken up again as far as it is whole."""

from pathlib import Path

import numpy as np

from manifind.index.build.journal import Journal


def test_a_journal_cut_off_in_the_middle_of_a_photo_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.random((n, 3)).astype(np.float16).astype(np.float32) for n in (4, 5, 6)]
    with Journal(tmp_path / "j", "print", 3) as journal:
        for i, vectors in enumerate(rows[:2]):
            journal.append(f"photo {i}", 10, 20, vectors, np.zeros((len(vectors), 4), np.float32))
    for name, extra in (("vectors.f16", b"12345"), ("boxes.f32", b"1"), ("photos.jsonl", b'["photo 2", 10')):
        with (tmp_path / "j" / name).open("ab") as stream:
            stream.write(extra)
    with Journal(tmp_path / "j", "print", 3) as journal:
        assert len(journal) == 2
        journal.append("photo 2", 10, 20, rows[2], np.ones((6, 4), np.float32))
        half, boxes = journal.arrays()
        np.testing.assert_array_equal(half, np.concatenate(rows))
        assert boxes[:9].sum() == 0
        assert boxes[9:].sum() == 24
    # Pages that a power cut left blank, behind a line that says they are there.
    with (tmp_path / "j" / "vectors.f16").open("r+b") as stream:
        stream.seek(4 * 3 * 2)
        stream.write(bytes(30))
    with Journal(tmp_path / "j", "print", 3) as journal:
        assert len(journal) == 1
    with Journal(tmp_path / "j", "another print", 3) as journal:
        assert len(journal) == 0
