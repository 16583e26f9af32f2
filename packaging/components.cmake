# SPDX-License-Identifier: Apache-2.0
# Read by cpack: packages of what was built, and no empty ones.
set(CPACK_COMPONENTS_ALL command)
list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
foreach(pair viewer:window gloo:gloo cuda:cuda)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 part)
  list(GET pair 1 module)
  if(EXISTS ${build}/bin/rehearse_${module}.so)
    list(APPEND CPACK_COMPONENTS_ALL ${part})
  endif()
endforeach()
