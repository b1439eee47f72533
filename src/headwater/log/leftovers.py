"""What a crash leaves in the folder of a log: deleted files, unfinished ones, half a swap of compaction.

A swap that had all its new files is finished; any other is undone.
"""

import logging

from headwater.log.batch_scan import headers, require_whole
from headwater.log.descriptors import Descriptors
from headwater.log.file_names import offset_in, offsets_in
from headwater.log.log_segments import rename_all, unlink_segment
from headwater.log.segment import CLEANED, DELETED, LOG, SUFFIXES, SWAP, DamagedSegment, Segment
from headwater.log.segment_checksums import CHECKSUMS
from headwater.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA
from headwater.seams.files import Files

log = logging.getLogger(__name__)


def clear_leftovers(
    files: Files, descriptors: Descriptors, directory: str
) -> tuple[list[str], list[str]]:
    """Return the names of the files that belong to the log, and the segments of finished swaps."""
    names = files.listdir(directory)
    for name in names:
        # In the middle of a swap, the checksums have their name before the segment has it.
        stem = name.removesuffix(CHECKSUMS)
        segments = (stem + LOG, stem + LOG + SWAP)
        ours = offset_in(name, CHECKSUMS) is not None
        orphan = ours and not any(one in names for one in segments)
        if orphan or name.endswith((DELETED, CLEANED, ".tmp")):
            files.unlink(f"{directory}/{name}")
    swapping = [name for name in names if _is_of_swap(name)]
    if not swapping:
        return files.listdir(directory), []
    swap = _UnfinishedSwap(files, descriptors, directory, names)
    finished = [
        f"{stem}{LOG}"
        for name in swapping
        if name.endswith(LOG + SWAP)
        and swap.finish(stem := f"{directory}/{name.removesuffix(LOG + SWAP)}")
    ]
    for name in swapping:
        # Indexes without their segment: the swap had not begun.
        if files.exists(f"{directory}/{name}"):
            files.unlink(f"{directory}/{name}")
    files.sync_dir(directory)
    return files.listdir(directory), finished


def _is_of_swap(name: str) -> bool:
    return any(offset_in(name, suffix + SWAP) is not None for suffix in SUFFIXES)


class _UnfinishedSwap:
    """The new segments of compaction that a crash left beside the old ones."""

    def __init__(
        self, files: Files, descriptors: Descriptors, directory: str, names: list[str]
    ) -> None:
        self._files = files
        self._descriptors = descriptors
        self._directory = directory
        self._bases = offsets_in(names, LOG)

    def finish(self, stem: str) -> bool:
        """Put a new segment in place of the old ones that it covers; return False if it is damaged.

        While the old `.log` of the same name is there, all files of that name are old
        (`LogSegments.replace`).
        """
        base = int(stem.rpartition("/")[2])
        size = self._files.path_size(stem + LOG + SWAP)
        swapped = Segment(self._files, self._descriptors, self._directory, base, size, suffix=SWAP)
        if not self._files.exists(swapped.checksums.path):
            swapped.checksums.path = stem + CHECKSUMS  # renamed before the segment
        end = self._sound_end(swapped)
        if self._files.exists(stem + LOG):
            if end == base or end not in self._bases:
                log.warning("%s is damaged; the segments that it was made of stay", swapped.path)
                return False
            unlink_segment(self._files, stem)
        for other in self._bases:
            if base < other < end:
                unlink_segment(self._files, f"{self._directory}/{other:020d}")
        rename_all(self._files, stem, SWAP, "")
        return True

    def _sound_end(self, segment: Segment) -> int:
        """Return where the batches of a segment end, up to the first damaged one.

        An offset is not covered by the CRC of its batch, so a segment that differs from its checksums
        has no end.
        """
        end = segment.base_offset
        try:
            wrong = segment.checksums.compare(self._descriptors.of(segment.path))
            if wrong is not None:
                raise DamagedSegment(f"{segment.path} is damaged near byte {wrong}")
            for position, header in headers(segment):
                require_whole(segment, position)
                end = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        except DamagedSegment as damage:
            log.warning("a segment of an unfinished swap is damaged: %s", damage)
        finally:
            self._descriptors.close_path(segment.path)
        return end
