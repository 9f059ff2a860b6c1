// SPDX-License-Identifier: Apache-2.0
// Fuzz target for safetensors files: the header's checks, every tensor's bytes, and a file written from the tensors.
#include <algorithm>
#include <cstring>

#include "fuzz_target.hpp"
#include "runtime/files/safetensors.hpp"

namespace maestro::fuzz {
namespace {

bool same(const NamedTensor& a, const NamedTensor& b) {
  return a.name == b.name && a.tensor.dtype() == b.tensor.dtype() && a.tensor.shape() == b.tensor.shape() &&
         (a.tensor.bytes() == 0 || std::memcmp(a.tensor.raw(), b.tensor.raw(), a.tensor.bytes()) == 0);
}

void check_written(const SafetensorsFile& file, std::vector<NamedTensor> tensors) {
  const std::filesystem::path target = scratch().path() / "written.safetensors";
  if (!accepted(write_safetensors(target, tensors, file.metadata()))) return;
  const Result<SafetensorsFile> again = SafetensorsFile::open(target);
  require(again.ok(), "a written file is a file", again.ok() ? "" : again.error().message);
  require(again->metadata() == file.metadata(), "metadata reads back equal");
  Result<std::vector<NamedTensor>> read = again->tensors();
  require(read.ok() && read->size() == tensors.size(), "all written tensors read back");
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  std::ranges::sort(*read, {}, &NamedTensor::name);
  require(std::ranges::equal(tensors, *read, same), "written tensors read back equal");
}

void read(const SafetensorsFile& file) {
  static_cast<void>(file.bytes_by_dtype());
  accepted(file.tensor("model.embed_tokens.weight"));
  for (const std::string& name : file.names()) {
    const Result<ConstTensor> described = file.described(name);
    if (!accepted(described)) continue;
    const Result<ConstTensor> tensor = file.tensor(name);
    require(tensor.ok() && tensor->shape() == described->shape(), "a described tensor can be read", name);
  }
  Result<std::vector<NamedTensor>> tensors = file.tensors();
  if (accepted(tensors)) check_written(file, *std::move(tensors));
}

}  // namespace
}  // namespace maestro::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const auto file = SafetensorsFile::open(fuzz::scratch().write("model.safetensors", fuzz::text_of(data, size)));
  if (fuzz::accepted(file)) fuzz::read(*file);
  return 0;
}
