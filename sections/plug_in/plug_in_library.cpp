// SPDX-License-Identifier: Apache-2.0
#include "sections/plug_in/plug_in_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstring>

#include "runtime/core/build_id.hpp"
#include "runtime/core/input_file.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

namespace fs = std::filesystem;

constexpr const char* entry_name = "maestro_plug_in";
constexpr const char* key = "plugins";
constexpr std::string_view mark = MAESTRO_PLUG_IN_MARK;
constexpr std::string_view elf =
    "\x7f"
    "ELF";
constexpr std::size_t largest_library = std::size_t{1} << 30;
constexpr PlugIn own{MAESTRO_PLUG_IN_ABI, nullptr};

[[noreturn]] void refuse(const std::string& file, const std::string& why,
                         ErrorCode code = ErrorCode::invalid_argument) {
  throw JobError(file + ": " + why, code);
}

/// Returns the ABI that a library's bytes state; empty: none.
std::string_view stated_abi(std::string_view library) {
  const std::size_t at = library.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view abi = library.substr(at, sizeof(PlugIn::abi));
  return abi.substr(0, abi.find('\0'));
}

/// Returns whether the file ends before its mapped parts do: touching the missing pages would end the process.
bool cut_off(std::string_view library) {
  ElfW(Ehdr) header;
  if (library.size() < sizeof(header)) return true;
  std::memcpy(&header, library.data(), sizeof(header));
  for (std::size_t at = 0; at < header.e_phnum; ++at) {
    ElfW(Phdr) segment;
    const std::size_t begin = header.e_phoff + at * sizeof(segment);
    if (begin > library.size() || library.size() - begin < sizeof(segment)) return true;
    std::memcpy(&segment, library.data() + begin, sizeof(segment));
    const bool there = segment.p_offset <= library.size() && segment.p_filesz <= library.size() - segment.p_offset;
    if (segment.p_type == PT_LOAD && !there) return true;
  }
  return false;
}

void check_abi(const std::string& file, std::string_view library) {
  if (!library.starts_with(elf)) refuse(file, "is not a shared library");
  if (cut_off(library)) refuse(file, "is cut off: the library is longer than the file");
  const std::string_view abi = stated_abi(library);
  if (abi.empty()) {
    refuse(file, std::string("is not a plug-in: it lacks the symbol ") + entry_name +
                     ", which MAESTRO_PLUG_IN of <maestro/plug_in.hpp> defines");
  }
  if (abi == plug_in_abi()) return;
  refuse(file, "was built for " + printable(abi.substr(mark.size()), sizeof(PlugIn::abi)) + "; this is " +
                   std::string(plug_in_abi().substr(mark.size())) + ": build the plug-in again");
}

/// Returns whether this file's code is in libmaestro.so, not in the program.
bool in_shared_library() {
  Dl_info here;
  link_map* program = nullptr;
  void* const self = dlopen(nullptr, RTLD_LAZY);
  return dladdr(own.abi, &here) != 0 && dlinfo(self, RTLD_DI_LINKMAP, &program) == 0 &&
         reinterpret_cast<ElfW(Addr)>(here.dli_fbase) != program->l_addr;
}

/// Returns the dynamic linker's error without its path prefix.
std::string linker_error(const fs::path& path) {
  std::string error = dlerror();
  const std::string prefix = path.string() + ": ";
  if (error.starts_with(prefix)) error.erase(0, prefix.size());
  return printable(error, 400);
}

/// Calls a plug-in's code. `what` names it, such as "section type 'a'". Throws JobError.
template <class Call>
auto guarded(const std::string& file, const std::string& what, Call call) {
  try {
    return call();
  } catch (const JobError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& problem) {
    refuse(file, what + " failed: " + printable(problem.what(), 400));
  } catch (...) {
    refuse(file, what + " failed with an exception that is not a std::exception");
  }
}

}  // namespace

void PlugInHost::add_section(std::string type, std::string description, SectionRegistry::Builder builder) {
  const std::string what = "section type '" + type + "'";
  auto checked = [builder = std::move(builder), file = file_, what](const SectionTable& section) {
    return guarded(file, what, [&] {
      return SectionFactory([factory = builder(section), file, what](const SectionContext& context) {
        return guarded(file, what, [&] { return factory(context); });
      });
    });
  };
  registries_.sections.add(std::move(type), std::move(description), std::move(checked), file_);
}

void PlugInHost::add_corpus(std::string kind, std::string description, CorpusRegistry::Opener opener) {
  auto checked = [opener = std::move(opener), file = file_, kind](const JobTable& data, std::uint64_t seed) {
    return guarded(file, "data kind '" + kind + "'", [&] { return opener(data, seed); });
  };
  registries_.corpora.add(std::move(kind), std::move(description), std::move(checked), file_);
}

void PlugInHost::add_observer(std::string name, std::string description, ObserverRegistry::Builder builder) {
  const std::string what = "observer '" + name + "'";
  auto checked = [builder = std::move(builder), file = file_, what](const JobTable& table) {
    return guarded(file, what, [&] {
      return ObserverFactory(
          [make = builder(table), file, what] { return guarded(file, what, [&] { return make(); }); });
    });
  };
  registries_.observers.add(std::move(name), std::move(description), std::move(checked), file_);
}

void PlugInHost::add_tokenizer(std::string name, std::function<std::unique_ptr<Tokenizer>()> make) {
  auto checked = [make = std::move(make), file = file_, what = "tokenizer '" + name + "'"] {
    return guarded(file, what, [&] { return make(); });
  };
  maestro::add_tokenizer(std::move(name), std::move(checked), file_);
}

void PlugInHost::add_policy(std::string name, PolicyFactory make) {
  auto checked = [make = std::move(make), file = file_, what = "scheduling policy '" + name + "'"](
                     const PolicyOptions& options) { return guarded(file, what, [&] { return make(options); }); };
  maestro::add_policy(std::move(name), std::move(checked), file_);
}

std::string_view plug_in_abi() {
  return own.abi;
}

PlugInLibrary::PlugInLibrary(const fs::path& file) : name_(printable(file.string(), 400)) {
  if (!in_shared_library()) {
    refuse(name_, "this program cannot load plug-ins, as its maestro code is static; link it to maestro::shared");
  }
  const Result<std::string> bytes = read_text(file, largest_library);
  if (!bytes) throw JobError(bytes.error());
  check_abi(name_, *bytes);
  const fs::path path = fs::absolute(file);  // a name without a slash would be searched for
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) refuse(name_, "cannot be loaded: " + linker_error(path));
  entry_ = static_cast<const PlugIn*>(dlsym(library, entry_name));
  if (entry_ == nullptr) refuse(name_, std::string("is not a plug-in: it does not export the symbol ") + entry_name);
  add_to_build_id(entry_);
}

void PlugInLibrary::add_to(const PlugInRegistries& registries) const {
  guarded(name_, "the registration of its types", [&] {
    PlugInHost host(registries, name_);
    entry_->add(host);
    return 0;
  });
}

std::vector<std::string> read_plug_ins(const JobTable& root) {
  return root.texts(key, {},
                    {"shared libraries with section types, corpora and others, as `maestro new plug-in` makes them"});
}

void add_plug_ins(const JobTable& root, const PlugInRegistries& registries) {
  for (const std::string& file : read_plug_ins(root)) {
    try {
      PlugInLibrary(file).add_to(registries);
    } catch (const JobError& problem) {
      root.fail(key, problem.what());
    }
  }
}

}  // namespace maestro
