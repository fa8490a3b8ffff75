# For ARM processors of 64 bits, from another machine: Debian's cross compiler, and its libraries beside those of the machine
# itself (scripts/install-deps neon). Whatever is built runs under qemu, tests included.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
