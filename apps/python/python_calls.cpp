// SPDX-License-Identifier: Apache-2.0
#include "apps/python/python_calls.hpp"

#include <nanobind/stl/string.h>

namespace maestro::python {

namespace nb = nanobind;

std::string line_of(nb::python_error& problem) {
  std::string line = nb::cast<std::string>(nb::str(problem.type().attr("__name__")));
  const auto text = nb::cast<std::string>(nb::str(problem.value()));
  if (!text.empty()) line += ": " + text.substr(0, text.find('\n'));
  const nb::object frames = nb::module_::import_("traceback").attr("extract_tb")(problem.traceback());
  if (nb::len(frames) == 0) return line;
  const nb::object frame = frames[nb::len(frames) - 1];
  const auto path = nb::cast<std::string>(frame.attr("filename"));
  return line + " (" + path.substr(path.find_last_of('/') + 1) + ":" +
         std::to_string(nb::cast<int>(frame.attr("lineno"))) + ")";
}

}  // namespace maestro::python
