# SPDX-License-Identifier: Apache-2.0
# Fails unless LIBRARY exports ENTRY and nothing else. Variables: NM, LIBRARY, ENTRY.
execute_process(COMMAND "${NM}" -D --defined-only "${LIBRARY}" OUTPUT_VARIABLE names RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${NM} cannot read ${LIBRARY}")
endif()
string(REGEX REPLACE "[0-9a-f]+ [A-Za-z] ([^\n]*)\n" "\\1;" names "${names}")
list(REMOVE_ITEM names "")
if(NOT names STREQUAL ENTRY)
  message(FATAL_ERROR "${LIBRARY} shows: ${names}")
endif()
