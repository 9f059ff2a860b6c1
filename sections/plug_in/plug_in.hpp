// SPDX-License-Identifier: Apache-2.0
// The entry of a plug-in: a shared library with section types, corpora, tokenizers, scheduling policies and observers.
// Job files name it in `plugins`.
//
//   MAESTRO_PLUG_IN(host) {
//     host.add_section<mine::Bigram>("bigram", "language model that sees one token");
//   }
//
// A plug-in links maestro::shared, whose definition MAESTRO_INTERFACE states the headers that it is compiled with.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus_registry.hpp"
#include "runtime/observe/run_observer.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "runtime/wavefront/policy.hpp"
#include "sections/registry.hpp"

namespace maestro {

/// Registries for the types of plug-ins.
struct PlugInRegistries {
  SectionRegistry& sections;
  CorpusRegistry& corpora;
  ObserverRegistry& observers;
};

/// Registers a plug-in's types; valid during the call of its entry.
class PlugInHost {
 public:
  /// `file` names the plug-in in errors.
  PlugInHost(const PlugInRegistries& registries, std::string file) : registries_(registries), file_(std::move(file)) {}

  /// Adds a section type. T has a constructor T(const SectionContext&, const T::Options&), and T::Options::read() for a
  /// SectionTable or its JobTable. Throws JobError with both libraries' names if another library has the type.
  template <class T>
  void add_section(std::string type, std::string description) {
    add_section(std::move(type), std::move(description), [](const SectionTable& section) {
      const auto read = [&section] {
        if constexpr (requires { T::Options::read(section); }) {
          return T::Options::read(section);
        } else {
          return T::Options::read(section.table);
        }
      };
      return SectionFactory(
          [options = read()](const SectionContext& context) { return std::make_unique<T>(context, options); });
    });
  }
  /// Adds a section type by its builder. If builder or constructor throw another exception than JobError, it becomes a
  /// JobError with file and type.
  void add_section(std::string type, std::string description, SectionRegistry::Builder builder);
  /// Adds a corpus, which a job chooses by `data.kind`. Converts exceptions like add_section().
  void add_corpus(std::string kind, std::string description, CorpusRegistry::Opener opener);
  /// Adds an observer, which a job chooses by a table [observers.NAME]. T has a constructor T(const T::Options&), and
  /// T::Options::read(JobTable) for the table. Converts exceptions like add_section().
  template <class T>
  void add_observer(std::string name, std::string description) {
    add_observer(std::move(name), std::move(description), [](const JobTable& table) {
      return ObserverFactory([options = T::Options::read(table)] { return std::make_unique<T>(options); });
    });
  }
  void add_observer(std::string name, std::string description, ObserverRegistry::Builder builder);
  /// Adds a tokenizer, which a job chooses by `data.tokenizer`. It has no files, so models are exported without it.
  void add_tokenizer(std::string name, std::function<std::unique_ptr<Tokenizer>()> make);
  /// Adds a scheduling policy, which a job chooses by `schedule.policy`.
  void add_policy(std::string name, PolicyFactory make);

 private:
  PlugInRegistries registries_;
  std::string file_;
};

/// The only symbol that a plug-in exports, under the name `maestro_plug_in`.
struct PlugIn {
  char abi[192];  ///< ABI, which the program reads from the file before it loads the library
  void (*add)(PlugInHost&);
};

}  // namespace maestro

#define MAESTRO_TEXT_OF(value) #value
#define MAESTRO_TEXT(value) MAESTRO_TEXT_OF(value)
#if defined(__clang__)
#define MAESTRO_COMPILER "clang " MAESTRO_TEXT(__clang_major__)
#else
#define MAESTRO_COMPILER "gcc " MAESTRO_TEXT(__GNUC__)
#endif
#if defined(_GLIBCXX_DEBUG)
#define MAESTRO_STANDARD_LIBRARY "libstdc++ " MAESTRO_TEXT(_GLIBCXX_RELEASE) " in debug mode"
#elif defined(_GLIBCXX_RELEASE)
#define MAESTRO_STANDARD_LIBRARY "libstdc++ " MAESTRO_TEXT(_GLIBCXX_RELEASE)
#else
#define MAESTRO_STANDARD_LIBRARY "libc++ " MAESTRO_TEXT(_LIBCPP_VERSION)
#endif
/// ABI of plug-in and program, which must be equal: MAESTRO_PLUG_IN_MARK, then a text for people.
#define MAESTRO_PLUG_IN_MARK "maestro plug-in: "
#define MAESTRO_PLUG_IN_ABI \
  MAESTRO_PLUG_IN_MARK "maestro " MAESTRO_INTERFACE ", " MAESTRO_COMPILER ", " MAESTRO_STANDARD_LIBRARY

/// Defines a plug-in's entry; its body follows and has a PlugInHost& with the given name.
#define MAESTRO_PLUG_IN(host)                                                        \
  static void maestro_plug_in_entry(maestro::PlugInHost& host);                      \
  extern "C" {                                                                       \
  [[gnu::visibility("default")]] extern const maestro::PlugIn maestro_plug_in;       \
  const maestro::PlugIn maestro_plug_in{MAESTRO_PLUG_IN_ABI, maestro_plug_in_entry}; \
  }                                                                                  \
  static void maestro_plug_in_entry(maestro::PlugInHost& host)
