# SPDX-License-Identifier: Apache-2.0
# Fails if an object that was compiled for an instruction set exports a symbol outside the set's namespace: an inline
# function or template from a shared header, which could replace the portable copy in the complete program. cmake
# -DNM=nm -DISA=avx512 "-DOBJECTS=a.o,b.o" -P check_isa_symbols.cmake
string(REPLACE "," ";" objects "${OBJECTS}")
if(NOT objects)
  message(FATAL_ERROR "no objects given for ${ISA}")
endif()
string(LENGTH "${ISA}" isa_length)
foreach(object IN LISTS objects)
  execute_process(COMMAND ${NM} --defined-only --extern-only ${object}
                  OUTPUT_VARIABLE symbols RESULT_VARIABLE failed ERROR_VARIABLE reason)
  if(failed)
    message(FATAL_ERROR "${NM} cannot read ${object}: ${reason}")
  endif()
  string(REGEX MATCHALL "[^\n]+" lines "${symbols}")
  set(own 0)
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[0-9a-f]+ [A-Za-z] " "" name "${line}")
    if(name MATCHES "^_ZN[VKRO]*7maestro3cpu${isa_length}${ISA}")  # the namespace's mangled name
      math(EXPR own "${own} + 1")
    elseif(NOT name MATCHES "^(__asan|__odr_asan|__ubsan|__tsan|DW\\.ref)")
      message(SEND_ERROR "${object} defines ${name}, which is not in maestro::cpu::${ISA}")
    endif()
  endforeach()
  if(own EQUAL 0)
    message(SEND_ERROR "${object} defines nothing in maestro::cpu::${ISA}")
  endif()
endforeach()
