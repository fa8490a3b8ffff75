# The executor for GPUs, src/exec/cuda: by nvcc, or with its kernels on the CPU (src/exec/cuda/emulate), for tests.
file(GLOB TG_CUDA_HOST CONFIGURE_DEPENDS src/exec/cuda/*.c src/link/cuda.c src/link/wire*.c)
file(GLOB TG_CUDA_KERNELS CONFIGURE_DEPENDS src/exec/cuda/*.cu)
if(TG_CUDA STREQUAL "nvcc")
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES) # machine code for these; later GPUs compile the last one's PTX when they first use it
        set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(TG_CUDA_RUNTIME CUDA::cudart_static)
    set(TG_CUDA_SHARED_RUNTIME CUDA::cudart_static -l:libstdc++.a -static-libgcc -Wl,--as-needed) # nothing else is needed where it runs
    # No contraction into fused multiply-add: results are those of the CPU.
    set(TG_CUDA_OPTIONS $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8) # less than half the size; unpacked when a kernel is first used
        list(APPEND TG_CUDA_OPTIONS $<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>)
    endif()
elseif(TG_CUDA STREQUAL "emulated")
    enable_language(CXX)
    list(REMOVE_ITEM TG_CUDA_KERNELS ${PROJECT_SOURCE_DIR}/src/exec/cuda/gpu.cu)
    set_source_files_properties(${TG_CUDA_KERNELS} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
    list(APPEND TG_CUDA_KERNELS src/exec/cuda/emulate/fibers.cc)
    list(APPEND TG_CUDA_HOST src/exec/cuda/emulate/calls.c src/exec/cuda/emulate/late.c src/exec/cuda/emulate/memory.c)
    set(TG_CUDA_RUNTIME "")
    set(TG_CUDA_SHARED_RUNTIME "")
    set(TG_CUDA_OPTIONS $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wno-unknown-pragmas -ffp-contract=off>)
else()
    message(FATAL_ERROR "TG_CUDA is nvcc or emulated, and not '${TG_CUDA}'")
endif()

add_library(tg_cuda_objects OBJECT ${TG_CUDA_HOST} ${TG_CUDA_KERNELS})
set_target_properties(tg_cuda_objects PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden
                      CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden CXX_STANDARD 17 CUDA_STANDARD 17)
target_include_directories(tg_cuda_objects PRIVATE src include)
target_compile_options(tg_cuda_objects PRIVATE ${TG_CUDA_OPTIONS}
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes -ffp-contract=off>
    $<$<AND:$<BOOL:${TG_WERROR}>,$<NOT:$<COMPILE_LANGUAGE:CUDA>>>:-Werror>)
target_compile_definitions(tg_cuda_objects PRIVATE _POSIX_C_SOURCE=200809L $<$<COMPILE_LANGUAGE:CXX>:_DEFAULT_SOURCE>)

add_library(tersegrad_cuda_static STATIC $<TARGET_OBJECTS:tg_cuda_objects>)
target_link_libraries(tersegrad_cuda_static PUBLIC tersegrad_static ${TG_CUDA_RUNTIME})
set_target_properties(tersegrad_cuda_static PROPERTIES OUTPUT_NAME tersegrad-cuda LINKER_LANGUAGE C)

# The shared form is all of the library, with the executor: a program links this one in place of libtersegrad. The CUDA runtime is in it,
# and looks for a driver when tg_cuda_open is called, so it loads on machines without one.
add_library(tersegrad_cuda_shared SHARED $<TARGET_OBJECTS:tg_objects> $<TARGET_OBJECTS:tg_cuda_objects>)
target_include_directories(tersegrad_cuda_shared PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(tersegrad_cuda_shared PRIVATE Threads::Threads m ${ZSTD_LIBRARY} ${TG_CUDA_SHARED_RUNTIME})
set_target_properties(tersegrad_cuda_shared PROPERTIES OUTPUT_NAME tersegrad-cuda EXPORT_NAME cuda LINKER_LANGUAGE C
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
tg_version_symbols(tersegrad_cuda_shared tersegrad-cuda)
