# `cpack` makes one Debian package with the program, both libraries, headers, manual page and completion (`make deb`).
# dpkg-shlibdeps finds what it depends on.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tersegrad)
set(CPACK_PACKAGE_CONTACT "The Tersegrad contributors <tersegrad@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "gradient compression for data-parallel training")
set(CPACK_PACKAGE_DESCRIPTION "A C library and a program that compress the gradients which workers of data-parallel
training exchange: sparsification, quantization, low-rank factors and entropy coding, with
error feedback. Holds the program, the shared and the static library, and the headers.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
# The loader's cache must learn of the library. CPack adds this itself for /usr/lib, but not for its folder by architecture.
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libzstd-dev, dataset-fashion-mnist")
include(CPack)
