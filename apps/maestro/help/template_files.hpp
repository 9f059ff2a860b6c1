// SPDX-License-Identifier: Apache-2.0
// The files with which `maestro new` begins a folder. cmake/MaestroTemplates.cmake makes the source from share/new.
//
// NW-1 (nothing lost): existing files are not overwritten; if one of the files exists, none is written.
#pragma once

#include <span>
#include <string_view>

namespace maestro {

/// A file of a new folder. @NAME@, @CLASS@ and @VERSION@ stand for the name, the name of its class and this version.
struct TemplateFile {
  std::string_view kind;  ///< folder of share/new
  std::string_view path;  ///< NAME stands for the name
  std::string_view text;
};
[[nodiscard]] std::span<const TemplateFile> template_files();

}  // namespace maestro
