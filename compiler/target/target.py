"""The device that a compilation is for: its profile, and what was measured of its family."""

from __future__ import annotations

from collections.abc import Mapping

from ...runtime.plan.device_profile import BYTE_PRODUCTS, WEB, DeviceProfile
from ...runtime.plan.record import record

# Cost records are compared by identity: each is written once, in the file of a family.


@record(eq=False)
class RegisterCosts:
    """Nanoseconds of a group of threads, each with a tile of a matrix product in registers."""

    load: float  #: of a vector, lane by lane
    multiply: float  #: of a multiply-add of vectors
    compile_accumulator: float  #: of compiling the tile, for each vector that a thread accumulates
    accumulators: int  #: vectors that a thread accumulates, at most


@record(eq=False)
class BroadcastCosts:
    """Nanoseconds of a subgroup whose threads share loads of a matrix product by broadcasts."""

    load: float  #: of a vector
    multiply: float  #: of a multiply-add of vectors
    compile_load: float
    compile_multiply: float
    accumulators: int  #: vectors that a thread accumulates, at most


@record(eq=False)
class DepthwiseCosts:
    """Nanoseconds of a group of threads in a convolution of every channel by itself."""

    load: float  #: of a vector
    store: float
    multiply: float  #: of a multiply-add of vectors
    compile_load: float
    compile_multiply: float
    loads: int  #: of a thread that computes several rows, at most


@record(eq=False)
class WinogradCosts:
    """Nanoseconds of a group of threads in the transforms of Winograd's filtering."""

    load: float  #: of a vector
    store: float
    compile: float  #: of both transforms


@record(eq=False)
class ThreadCosts:
    """Costs where threads share nothing, because workgroup memory costs as much as any other; in nanoseconds.

    ``Target.group_threads`` threads run together on one of ``cores`` cores.  Compiling counts as ``Target.repaid_runs``
    says.
    """

    cores: int
    start: float  #: of a group of threads
    register: RegisterCosts
    broadcast: BroadcastCosts
    depthwise: DepthwiseCosts
    winograd: WinogradCosts


@record(eq=False)
class SplitCosts:
    """Costs by which the terms of a matrix product are split among workgroups."""

    parts: tuple[int, ...]  #: numbers of parts that are considered
    least_extent: int  #: terms of a part, at least
    second_pass: float  #: microseconds of the call that adds the parts
    byte: float  #: microseconds of a byte that this call moves
    gain: float  #: part of the time that must be left, at most


@record(eq=False)
class AttentionCosts:
    """Costs by which the keys of one query are split among workgroups, in nanoseconds."""

    byte: float  #: of keys and values
    merge: float  #: of the call that merges the parts
    merge_part: float  #: of each part in it
    parts: int  #: at most


@record(eq=False)
class WorkgroupCosts:
    """Costs where the threads of a workgroup share tiles in its memory."""

    multiprocessors: int
    #: What is multiplied ("floats", "words" of four bytes, "scaled words")
    #: -> (block_m, block_n, block_k, rows, columns, parts, padding) of a :class:`~..tuning.gemm_tiles.SharedTile`
    #: -> microseconds of a kernel besides its steps along k, then those of ``steps`` steps for each in ``sharing``
    tiles: Mapping[str, Mapping[tuple[int, int, int, int, int, int, int], tuple[float, ...]]]
    sharing: tuple[int, ...]  #: workgroups on every multiprocessor for which ``tiles`` has times, ascending
    steps: int
    written_out: int  #: steps along k that one trip of the loop over a tile has
    #: vectors of results of a thread from which a tile whose terms no parts share has all its steps written out
    large_tile: int
    #: steps along k of all workgroups from which half as many suffice, whether parts share the terms or not
    long_product: int
    busy_threads: int  #: that keep a multiprocessor busy with loads
    split: SplitCosts
    attention: AttentionCosts


@record
class Target:
    """A device as the compiler sees it: a family's data with the profile of one device.

    Files in :mod:`.families` hold one for each family, with the profile :data:`~.device_profile.WEB`.
    """

    name: str  #: of the family, for people
    #: texts in small letters; a device of the family has one of them in the name of its adapter or driver
    adapters: tuple[str, ...]
    is_software: bool  #: whether the family's devices are drivers that compute on the host's processor
    costs: ThreadCosts | WorkgroupCosts
    max_loop_trips: int | None  #: trips of all loops of a thread, after which its results are wrong; None: no limit
    #: runs within which a kernel that takes longer to compile must have paid; 0: compile times do not count
    repaid_runs: int
    repaid_range_runs: int  #: the same of a kernel for a range of sizes, which is compiled once for all
    group_threads: int  #: threads of the smallest workgroup that leaves no lanes idle
    busy_workgroups: int  #: that keep the device busy
    busy_workgroup_threads: int  #: of each, when all they do is read memory
    neighbours: int  #: threads that follow one another and are surely in one subgroup, a power of two; 0: not known
    has_cheap_barriers: bool  #: whether threads may share a row wherever rows are few
    prefers_long_words: bool  #: whether two neighbouring floats are better loaded as one 64-bit integer
    converts_halves: bool  #: whether reading a half takes no longer than reading a float
    transforms_bytes: bool  #: whether Winograd's filtering takes weights of 8 bits, too, whose transforms are floats
    by_bits: tuple[str, ...]  #: helpers whose form in integer arithmetic is faster than the driver's function
    multiplies_bytes: bool  #: whether products of the four bytes of a word take the time of one product
    prefers_written_out_loops: bool  #: whether short loops of a fixed number of trips are better written out
    #: whether the driver writes out loops whose bounds it knows, which takes it long, and specialises a shader anew in
    #: every run for the uniforms that bound its loops
    inlines_uniforms: bool
    wide_map_threads: int | None  #: threads from which an elementwise kernel has large workgroups; None: never
    narrow_recurrent_units: int  #: units of a recurrent layer up to which its workgroups are small
    stepped_recurrent_units: int  #: units of a recurrent layer from which each step is a dispatch of its own
    profile: DeviceProfile = WEB

    @property
    def uses_workgroup_memory(self) -> bool:
        """Whether it pays that the threads of a workgroup share data in its memory."""
        return isinstance(self.costs, WorkgroupCosts)

    @property
    def longest_own_row(self) -> int:
        """Elements of a row up to which a thread reduces the rows of all the elements in a word that it stores."""
        return 64 if self.uses_workgroup_memory else 8192

    @property
    def max_attention_queries(self) -> int | None:
        """Queries of a head up to which one kernel computes softmax and product together; None: no limit."""
        return None if self.uses_workgroup_memory else 1

    @property
    def byte_instructions(self) -> tuple[str, ...]:
        """The feature by which kernels multiply the bytes of words, if the device has it."""
        return (BYTE_PRODUCTS,) if self.has_feature(BYTE_PRODUCTS) else ()

    @property
    def byte_products(self) -> tuple[str, ...]:
        """The same where it is fast; else none."""
        return self.byte_instructions if self.multiplies_bytes else ()

    def limit(self, name: str) -> int:
        """Return one of the device's limits, by WebGPU's name with dashes."""
        return self.profile.limit(name)

    @property
    def largest_tensor(self) -> int:
        """Bytes of the largest tensor that a kernel binds."""
        return min(self.limit("max-storage-buffer-binding-size"), self.limit("max-buffer-size"))

    @property
    def max_workgroup_threads(self) -> int:
        """Threads of the largest workgroup of any kernel: WebGPU's 256, or what the device allows; in OpenGL ES 128."""
        return min(256, self.limit("max-compute-invocations-per-workgroup"))

    def has_feature(self, name: str) -> bool:
        """Return whether the device has one of WebGPU's optional features."""
        return name in self.profile.features

    @property
    def subgroup_size(self) -> int:
        """Threads of a subgroup; 0: not known, or not constant."""
        return self.profile.subgroup_size

    @property
    def storage_alignment(self) -> int:
        """Bytes to which offsets of storage bindings are aligned."""
        return self.profile.storage_alignment
