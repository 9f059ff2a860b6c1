// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/teacher/teacher_shards.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/files/checksum.hpp"
#include "runtime/ops/distillation_options.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t most_in_a_byte = 255;
constexpr const char* way_out = "; run `maestro teach` again, which writes what is missing";

Error damaged(const fs::path& file, const std::string& what) {
  return {ErrorCode::corrupt, file.string() + " " + what + "; remove it from the shards of teacher.json, or write " +
                                  "the records anew with `maestro teach`"};
}

/// Returns entry `at` of counts, which are bytes or integers.
std::int64_t count_at(const ConstTensor& counts, std::int64_t at) {
  return counts.dtype() == DType::u8 ? counts.data<std::uint8_t>()[at] : counts.data<std::int32_t>()[at];
}

/// Returns a tensor that views the vector's elements, for a writer, which only reads them.
template <class T>
ConstTensor view(const std::vector<T>& values) {
  static const T nothing{};  // a tensor without elements needs memory, too
  return {values.empty() ? &nothing : values.data(), dtype_of<T>, Shape{static_cast<std::int64_t>(values.size())}};
}

}  // namespace

void ShardRows::add(std::span<const float> values, std::span<const std::int32_t> indices, float rest) {
  double reached = 0;
  std::size_t count = 0;
  while (count < values.size() && (count == 0 || p_ >= 1 || reached < p_)) reached += std::exp(values[count++]);
  double others = std::exp(double{rest});
  for (std::size_t at = count; at < values.size(); ++at) others += std::exp(double{values[at]});
  for (std::size_t at = 0; at < count; ++at) {
    ids_.push_back(indices[at]);
    logprobs_.push_back(std::clamp(values[at], least_log_probability, 0.0F));
  }
  counts_.push_back(static_cast<std::int32_t>(count));
  rest_.push_back(others > 0 ? std::clamp(static_cast<float>(std::log(others)), least_log_probability, 0.0F)
                             : least_log_probability);
  rest_sum_ += others;
}

void ShardRows::append(const ShardRows& more) {
  const auto rows = static_cast<std::int64_t>(counts_.size());
  for (const std::int64_t offset : more.offsets_) offsets_.push_back(rows + offset);
  ids_.insert(ids_.end(), more.ids_.begin(), more.ids_.end());
  logprobs_.insert(logprobs_.end(), more.logprobs_.begin(), more.logprobs_.end());
  counts_.insert(counts_.end(), more.counts_.begin(), more.counts_.end());
  rest_.insert(rest_.end(), more.rest_.begin(), more.rest_.end());
  rest_sum_ += more.rest_sum_;
}

Result<RecordedShard> ShardRows::write(const fs::path& folder, std::uint64_t shard) {
  std::vector<std::uint8_t> bytes(counts_.begin(), counts_.end());
  std::vector<NamedTensor> tensors{{"ids", view(ids_)},
                                   {"logprobs", view(logprobs_)},
                                   {"counts", k_ > most_in_a_byte ? view(counts_) : view(bytes)},
                                   {"rest", view(rest_)},
                                   {"offsets", view(offsets_)}};
  const auto written = write_weights(folder / shard_name(shard), std::move(tensors), WeightDtype::f16);
  if (!written) return written.error();
  return RecordedShard{shard_name(shard), counts_.size(), ids_.size(), written->bytes, rest_sum_, written->checksum};
}

Result<TeacherShards> TeacherShards::open(const fs::path& folder, Check check) {
  TeacherShards all;
  Result<TeacherRecords> records = load_records(folder);
  if (!records) return records.error();
  all.records_ = *std::move(records);
  const TeacherRecords& known = all.records_;
  if (!known.complete()) {
    return Error{ErrorCode::not_found, folder.string() + " has " + std::to_string(known.shards.size()) + " of " +
                                           std::to_string(known.shard_count()) + " shards: " +
                                           shard_name(known.shards.size()) + " is not there yet" + way_out};
  }
  for (std::uint64_t number = 0; number < known.shard_count(); ++number) {
    Result<Shard> shard = all.open_shard(folder, number, check);
    if (!shard) return shard.error();
    all.shards_.push_back(*std::move(shard));
  }
  return all;
}

Result<TeacherShards::Shard> TeacherShards::open_shard(const fs::path& folder, std::uint64_t number,
                                                       Check check) const {
  const RecordedShard& recorded = records_.shards[static_cast<std::size_t>(number)];
  const fs::path path = folder / recorded.file;
  std::error_code failure;
  const std::uintmax_t bytes = fs::file_size(path, failure);
  if (failure) {
    return Error{ErrorCode::not_found, "shard " + path.string() + " is missing" + way_out};
  }
  if (bytes != recorded.bytes) {
    return damaged(
        path, "has " + std::to_string(bytes) + " bytes, but teacher.json states " + std::to_string(recorded.bytes));
  }
  if (check == Check::content) {
    const Result<std::string> checksum = checksum_of_file(path);
    if (!checksum) return checksum.error();
    if (*checksum != recorded.checksum) return damaged(path, "is damaged: its checksum differs from teacher.json");
  }
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.error();
  Shard shard{*std::move(file), {}, {}, {}, {}};
  const auto samples = static_cast<std::size_t>(records_.samples_of(number).count);
  for (const auto& [name, dtype, size] :
       {std::tuple("ids", DType::i32, recorded.entries), std::tuple("logprobs", DType::f32, recorded.entries),
        std::tuple("rest", DType::f32, recorded.rows), std::tuple("offsets", DType::i64, std::uint64_t{samples}),
        std::tuple("counts", records_.k > most_in_a_byte ? DType::i32 : DType::u8, recorded.rows)}) {
    const Result<ConstTensor> form = shard.file.described(name);
    if (!form) return form.error();
    if (form->dtype() == dtype && form->shape() == Shape{static_cast<std::int64_t>(size)}) continue;
    return damaged(path, std::string("has a tensor ") + name + " of another dtype or size than teacher.json states");
  }
  const Status indexed = index(shard, recorded);
  if (!indexed) return damaged(path, indexed.error().message);
  return shard;
}

Status TeacherShards::index(Shard& shard, const RecordedShard& recorded) const {
  const auto wrong = [](const char* what) { return Error{ErrorCode::corrupt, what}; };
  shard.ids = shard.file.tensor("ids").value_or_throw();
  shard.counts = shard.file.tensor("counts").value_or_throw();
  shard.offsets = shard.file.tensor("offsets").value_or_throw().span<std::int64_t>();
  const auto rows = static_cast<std::int64_t>(recorded.rows);
  if (!std::ranges::is_sorted(shard.offsets) || shard.offsets.empty() || shard.offsets.front() != 0 ||
      shard.offsets.back() > rows) {
    return wrong("has offsets that do not ascend from 0 within its rows");
  }
  std::int64_t entry = 0;
  std::size_t sample = 0;
  for (std::int64_t row = 0; row <= rows; ++row) {
    while (sample < shard.offsets.size() && shard.offsets[sample] == row) {
      shard.entries.push_back(entry);
      ++sample;
    }
    if (row == rows) break;
    const std::int64_t count = count_at(shard.counts, row);
    if (count < 0 || count > records_.k) return wrong("has a row with a count outside of 0 to k");
    entry += count;
  }
  if (entry != static_cast<std::int64_t>(recorded.entries))
    return wrong("has counts that do not sum up to its entries");
  return {};
}

Status TeacherShards::read(Split split, SampleId sample, const RecordedRows& rows) const {
  const std::uint64_t number = records_.number(split, sample);
  const std::uint64_t size = split == Split::train ? records_.training_samples : records_.validation_samples;
  if (sample.value() >= size) {
    return Error{ErrorCode::not_found, "the teacher's records lack sample " + std::to_string(sample.value())};
  }
  const Shard& shard = shards_[static_cast<std::size_t>(number / records_.shard_samples)];
  const auto at = static_cast<std::size_t>(number % records_.shard_samples);
  const std::int64_t first = shard.offsets[at];
  const std::int64_t end = at + 1 < shard.offsets.size() ? shard.offsets[at + 1] : shard.counts.elements();
  const std::string name = shard.file.path().string();
  if (end - first != static_cast<std::int64_t>(rows.rest.size())) {
    return Error{ErrorCode::corrupt, name + " has " + std::to_string(end - first) + " rows of sample " +
                                         std::to_string(sample.value()) + ", but the corpus has " +
                                         std::to_string(rows.rest.size()) + " positions"};
  }
  if (const Status widened = shard.file.widen("rest", first, rows.rest); !widened) return widened;
  const auto k = static_cast<std::size_t>(records_.k);
  std::int64_t entry = shard.entries[at];
  for (std::size_t row = 0; row < rows.rest.size(); ++row) {
    const auto count = static_cast<std::size_t>(count_at(shard.counts, first + static_cast<std::int64_t>(row)));
    const auto values = rows.values.subspan(row * k, k);
    const auto indices = rows.indices.subspan(row * k, k);
    std::copy_n(shard.ids.data<std::int32_t>() + entry, count, indices.begin());
    std::ranges::fill(indices.subspan(count), -1);
    std::ranges::fill(values.subspan(count), least_log_probability);
    if (const Status widened = shard.file.widen("logprobs", entry, values.first(count)); !widened) return widened;
    const bool known =
        std::ranges::all_of(indices.first(count), [&](std::int32_t id) { return id >= 0 && id < records_.vocabulary; });
    if (!known) return Error{ErrorCode::corrupt, name + " names a token outside the vocabulary"};
    entry += static_cast<std::int64_t>(count);
  }
  return {};
}

std::string TeacherShards::fingerprint() const {
  std::string all = std::to_string(records_.k);
  for (const RecordedShard& shard : records_.shards) all += " " + shard.checksum;
  return checksum_of(all);
}

}  // namespace maestro
