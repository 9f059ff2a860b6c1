// SPDX-License-Identifier: Apache-2.0
#include "apps/python/python_corpus.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>

#include "apps/python/python_calls.hpp"

namespace maestro::python {

namespace nb = nanobind;

namespace {

constexpr std::size_t most_cached = 4096;  // samples

const char* name_of(Split split) {
  return split == Split::train ? "train" : "validation";
}

std::string call_text(const char* method, Split split, SampleId sample) {
  return std::string("the corpus in Python: ") + method + "(\"" + name_of(split) + "\", " +
         std::to_string(sample.value()) + ")";
}

/// Returns the integers in a list, or in an array with tolist().
std::vector<std::int32_t> integers(const nb::object& values) {
  return nb::cast<std::vector<std::int32_t>>(nb::hasattr(values, "tolist") ? values.attr("tolist")() : values);
}

}  // namespace

PythonCorpus::PythonCorpus(nb::object source) : source_(std::move(source)) {
  const auto count = [this](const char* split) { return nb::cast<std::int64_t>(source_.attr("samples")(split)); };
  vocabulary_ = with_python("the corpus in Python: vocabulary",
                            [&] { return nb::cast<std::int64_t>(source_.attr("vocabulary")); });
  const std::int64_t training = with_python("the corpus in Python: samples(\"train\")", [&] { return count("train"); });
  const std::int64_t validation =
      with_python("the corpus in Python: samples(\"validation\")", [&] { return count("validation"); });
  constexpr std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();
  if (vocabulary_ < 1 || vocabulary_ > most_tokens) {
    throw JobError("the corpus in Python: vocabulary = " + std::to_string(vocabulary_) +
                   " is not a valid number of tokens");
  }
  if (training < 1 || validation < 0) {
    throw JobError("the corpus in Python has " + std::to_string(training) + " training and " +
                   std::to_string(validation) + " validation samples; expected at least 1 and 0");
  }
  training_samples_ = static_cast<std::uint64_t>(training);
  validation_samples_ = static_cast<std::uint64_t>(validation);
}

PythonCorpus::~PythonCorpus() {
  const nb::gil_scoped_acquire locked;
  source_.reset();
}

std::uint64_t PythonCorpus::samples(Split split) const {
  return split == Split::train ? training_samples_ : validation_samples_;
}

std::int64_t PythonCorpus::length(Split split, SampleId sample) const {
  if (sample.value() >= samples(split)) throw std::out_of_range(call_text("length", split, sample));
  const auto positions = with_python(call_text("length", split, sample), [&] {
    return nb::cast<std::int64_t>(source_.attr("length")(name_of(split), sample.value()));
  });
  if (positions < 2) {
    throw JobError(call_text("length", split, sample) + " returns " + std::to_string(positions) +
                   "; a sample has two positions or more");
  }
  return positions;
}

std::int64_t PythonCorpus::targets(Split split, SampleId sample) const {
  const auto is_target = [](std::int32_t target) { return target != ignored_target; };
  return std::ranges::count_if(sample_of(split, sample)->targets, is_target);
}

Status PythonCorpus::prepare(Split split, SampleId sample) const {
  try {
    (void)sample_of(split, sample);
    return {};
  } catch (const JobError& problem) {
    return Error{ErrorCode::corrupt, problem.what()};
  }
}

std::string PythonCorpus::describe() const {
  return with_python("the corpus in Python: describe()",
                     [&] { return nb::cast<std::string>(source_.attr("describe")()); });
}

DataFingerprint PythonCorpus::fingerprint() const {
  DataFingerprint print = Corpus::fingerprint();
  const auto own = with_python("the corpus in Python: fingerprint()", [&] {
    return nb::cast<std::map<std::string, std::string>>(source_.attr("fingerprint")());
  });
  for (const auto& [name, value] : own) print[name] = value;
  return print;
}

PythonCorpus::Sample PythonCorpus::read_by_python(Split split, SampleId sample) const {
  const std::string call = call_text("read", split, sample);
  Sample read;
  with_python(call, [&] {
    const nb::object answer = source_.attr("read")(name_of(split), sample.value());
    if (nb::isinstance<nb::tuple>(answer) && nb::len(answer) == 2) {
      read.tokens = integers(answer[0]);
      read.targets = integers(answer[1]);
    } else {
      read.tokens = integers(answer);
      read.targets.assign(read.tokens.begin() + (read.tokens.empty() ? 0 : 1), read.tokens.end());
      read.targets.push_back(ignored_target);
    }
  });
  const auto positions = static_cast<std::size_t>(length(split, sample));
  if (read.tokens.size() != positions || read.targets.size() != positions) {
    throw JobError(call + " returns " + std::to_string(read.tokens.size()) + " tokens and " +
                   std::to_string(read.targets.size()) + " targets, but length() returns " + std::to_string(positions));
  }
  const auto check = [&](const char* what, std::int32_t value, std::int32_t least) {
    if (value >= least && value < vocabulary_) return;
    throw JobError(call + " returns the " + what + " " + std::to_string(value) + ", but the vocabulary has " +
                   std::to_string(vocabulary_) + " tokens");
  };
  for (const std::int32_t token : read.tokens) check("token", token, 0);
  for (const std::int32_t target : read.targets) check("target", target, ignored_target);
  return read;
}

std::shared_ptr<const PythonCorpus::Sample> PythonCorpus::sample_of(Split split, SampleId sample) const {
  const auto key = std::make_pair(split, sample);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = cache_.find(key); found != cache_.end()) return found->second;
  }
  auto read = std::make_shared<const Sample>(read_by_python(split, sample));
  const std::lock_guard lock(mutex_);
  if (cache_.size() >= most_cached) cache_.clear();
  return cache_.try_emplace(key, std::move(read)).first->second;
}

void PythonCorpus::read_exact(Split split, SampleId sample, std::span<std::int32_t> tokens,
                              std::span<std::int32_t> targets) const {
  const std::shared_ptr<const Sample> read = sample_of(split, sample);
  std::ranges::copy(read->tokens, tokens.begin());
  std::ranges::copy(read->targets, targets.begin());
}

}  // namespace maestro::python
