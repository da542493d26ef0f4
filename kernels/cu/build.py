#!/usr/bin/env python3
"""Compiles kernels/cu/*.cu to kernels/cubins/*.cubin with NVRTC 13.0, and checks what came out.

    python3 kernels/cu/build.py            writes the cubins
    python3 kernels/cu/build.py --check    writes nothing; fails if a cubin is not what its source gives, or is unfit
    python3 kernels/cu/build.py --table    also prints registers, shared memory and sizes

Needs `pip install 'nvidia-cuda-nvrtc==13.0.*'` in the Python that runs it, or NVRTC's library named by KVWEFT_NVRTC.
Neither a GPU nor a driver is needed. Unfit is: a stack frame (spills, or arrays indexed at run time), more
shared memory than a block may have (99 KB but on sm_90a), more registers than its largest block may have, and no QMMA instruction in the native fp8 logits.
"""

import argparse
import ctypes
import glob
import os
import re
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CUBINS = os.path.join(HERE, "..", "cubins")
ARCHITECTURES = ("sm_90", "sm_120")
# Sources with wgmma, which only sm_90a knows, and their architectures.
ONLY = {"index_logits": ("sm_90a", "sm_120"), "sparse_attention": ("sm_90", "sm_120"), "sparse_attention_wgmma": ("sm_90a",)}
NVRTC_VERSION = (13, 0)
# 99 KB of sm_120, 227 KB of sm_90.
SHARED_MAX = {"sm_90": 101_376, "sm_90a": 232_448, "sm_120": 101_376}
REGISTERS_OF_A_BLOCK_MAX = 65_536
# The low 12 bits of an instruction.
OPCODE_QMMA = 0x27A
# (source, suffix of the cubin, architecture, more options): the sm_120 way of the logits, so that sm_90 can test it.
EXTRA = [("index_logits", ".portable", "sm_90", ["-DPORTABLE"])]
# (cubin, kernel)
MUST_HAVE_QMMA = {("index_logits.sm_120.cubin", "index_logits_fp8")}


def nvrtc_library():
    """NVRTC, from KVWEFT_NVRTC, from the Python package, or from the loader's list."""
    candidates = [os.environ["KVWEFT_NVRTC"]] if "KVWEFT_NVRTC" in os.environ else []
    for folder in sys.path:
        candidates += sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libnvrtc.so*")))
    for name in candidates + ["libnvrtc.so.13", "libnvrtc.so"]:
        try:
            # It looks for this library by its bare name: one that is loaded already is found.
            for builtins in glob.glob(os.path.join(os.path.dirname(name) or "/nowhere", "libnvrtc-builtins.so*")):
                ctypes.CDLL(builtins)
            return ctypes.CDLL(name)
        except OSError:
            continue
    sys.exit("NVRTC was not found: pip install 'nvidia-cuda-nvrtc==13.0.*', or set KVWEFT_NVRTC to its library")


class Compiler:
    """The compiler library of one version."""

    def __init__(self):
        self.library = nvrtc_library()
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        if (major.value, minor.value) != NVRTC_VERSION:
            sys.exit(f"expected NVRTC {NVRTC_VERSION}, got {(major.value, minor.value)}: other versions give other bytes")

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status != 0:
            sys.exit(f"{name} returned {status}")

    def cubin(self, source, architecture, more):
        """The bytes of one source for one architecture."""
        with open(os.path.join(HERE, source + ".cu"), "rb") as file:
            text = file.read()
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), text, (source + ".cu").encode(), 0, None, None)
        options = [f"--gpu-architecture={architecture}", "--std=c++17", *more]
        array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = self.library.nvrtcCompileProgram(program, len(options), array)
        size = ctypes.c_size_t()
        self.call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.call("nvrtcGetProgramLog", program, log)
        if log.value.strip():
            print(f"{source} for {architecture}:\n{log.value.decode()}", file=sys.stderr)
        if status != 0:
            sys.exit(f"{source}.cu does not compile for {architecture}")
        self.call("nvrtcGetCUBINSize", program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        self.call("nvrtcGetCUBIN", program, image)
        self.call("nvrtcDestroyProgram", ctypes.byref(program))
        return image.raw


def sections(image):
    """(name, bytes or None, size) of every section of a 64-bit ELF."""
    (offset,) = struct.unpack_from("<Q", image, 0x28)
    entry, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, offset + i * entry) for i in range(count)]
    text_at = headers[names][4]
    for header in headers:
        name = image[text_at + header[0] : image.index(b"\0", text_at + header[0])].decode()
        at, size = header[4], header[5]
        yield name, None if header[1] == 8 else image[at : at + size], size


def resources(image):
    """For each kernel: registers, static shared memory, stack frame, largest block, QMMA instructions."""
    kernels = {}
    table = list(sections(image))
    for name, data, _ in table:
        if name.startswith(".text."):
            opcodes = [struct.unpack_from("<Q", data, at)[0] & 0xFFF for at in range(0, len(data) - 15, 16)]
            kernels[name[6:]] = {"registers": 0, "shared": 0, "frame": 0, "threads": 1024, "qmma": opcodes.count(OPCODE_QMMA)}
    for name, data, size in table:
        kernel = kernels.get(name.split(".", 3)[-1])
        if kernel is None:
            continue
        if name.startswith(".nv.shared."):
            kernel["shared"] = size
        if name.startswith(".nv.local."):
            kernel["frame"] = max(kernel["frame"], size)
        if name.startswith(".nv.info."):
            for attribute, value in attributes(data):
                # Attributes of the CUDA binary format: 0x05 is the largest block.
                if attribute == 0x05:
                    kernel["threads"] = struct.unpack_from("<III", value)[0]
    common = next((data for name, data, _ in table if name == ".nv.info"), b"")
    # 0x11 is a kernel's stack frame, 0x2f its registers: (symbol, number). The largest of a file counts for all of it.
    for attribute, value in attributes(common):
        field = {0x11: "frame", 0x2F: "registers"}.get(attribute)
        for kernel in kernels.values() if field else ():
            kernel[field] = max(kernel[field], struct.unpack_from("<II", value)[1])
    return kernels


def attributes(data):
    """(attribute, payload) of a section of attributes."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:
            yield attribute, data[at : at + value]
            at += value


def dynamic_shared(source):
    """What a source says that its launches add to static shared memory."""
    with open(os.path.join(HERE, source + ".cu"), encoding="utf-8") as file:
        said = re.findall(r"dynamic shared memory: at most (\d+) bytes", file.read())
    return max(map(int, said), default=0)


def unfit(file, image, source, architecture):
    """Why a cubin must not be used."""
    for name, kernel in resources(image).items():
        if kernel["frame"]:
            yield f"{file}: {name} has a stack frame of {kernel['frame']} bytes"
        shared = kernel["shared"] + dynamic_shared(source)
        if shared > SHARED_MAX[architecture]:
            yield f"{file}: {name} needs {shared} bytes of shared memory, of at most {SHARED_MAX[architecture]}"
        # Registers are given out to a warp by eights.
        if -(-kernel["registers"] // 8) * 8 * kernel["threads"] > REGISTERS_OF_A_BLOCK_MAX:
            yield f"{file}: {name} has {kernel['registers']} registers in blocks of {kernel['threads']} threads"
        if (file, name) in MUST_HAVE_QMMA and not kernel["qmma"]:
            yield f"{file}: {name} has no QMMA instruction"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    compiler = Compiler()
    names = sorted(name[:-3] for name in os.listdir(HERE) if name.endswith(".cu"))
    jobs = [(name, f"{name}.{arch}.cubin", arch, []) for name in names for arch in ONLY.get(name, ARCHITECTURES)]
    jobs += [(name, f"{name}{suffix}.{arch}.cubin", arch, more) for name, suffix, arch, more in EXTRA]
    problems, total = [], 0
    for source, file, architecture, more in jobs:
        image = compiler.cubin(source, architecture, more)
        total += len(image)
        problems += unfit(file, image, source, architecture)
        if arguments.table:
            for name, kernel in resources(image).items():
                print(f"{file:36} {name:24} {len(image):7} {kernel}")
        path = os.path.join(CUBINS, file)
        if arguments.check:
            stored = open(path, "rb").read() if os.path.exists(path) else None
            if stored != image:
                problems.append(f"{file} is {'missing' if stored is None else 'not what its source gives'}: run build.py")
        else:
            os.makedirs(CUBINS, exist_ok=True)
            with open(path, "wb") as out:
                out.write(image)
    known = {file for _, file, _, _ in jobs}
    stray = [file for file in os.listdir(CUBINS) if file.endswith(".cubin") and file not in known]
    problems += [f"{file} has no source" for file in stray]
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(jobs)} cubins, {total} bytes, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
