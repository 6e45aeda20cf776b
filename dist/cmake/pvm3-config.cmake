# find_package(pvm3 3.4) gives these to link to:
#
#   pvm3::pvm3    PVM's C interface, groups among it
#   pvm3::gpvm3   the same, under the name of the library of groups
#   pvm3::fpvm3   the Fortran interface
#   pvm3::static  all of it without a shared library
#
# Moves with the tree in which it lies.
get_filename_component(_pvm3_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET pvm3::pvm3)
  add_library(pvm3::pvm3 SHARED IMPORTED)
  set_target_properties(pvm3::pvm3 PROPERTIES
    IMPORTED_LOCATION "${_pvm3_prefix}/lib/libpvm3.so.3"
    IMPORTED_SONAME "libpvm3.so.3"
    INTERFACE_INCLUDE_DIRECTORIES "${_pvm3_prefix}/include")
  add_library(pvm3::static STATIC IMPORTED)
  set_target_properties(pvm3::static PROPERTIES
    IMPORTED_LOCATION "${_pvm3_prefix}/lib/libpvm3.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_pvm3_prefix}/include")
  foreach(_pvm3_name gpvm3 fpvm3)
    add_library(pvm3::${_pvm3_name} INTERFACE IMPORTED)
    set_target_properties(pvm3::${_pvm3_name} PROPERTIES INTERFACE_LINK_LIBRARIES pvm3::pvm3)
  endforeach()
endif()

unset(_pvm3_prefix)
unset(_pvm3_name)
