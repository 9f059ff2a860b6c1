// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/tensorboard.hpp"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <system_error>
#include <utility>

namespace maestro {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof(value); ++i) out += static_cast<char>((value >> (8 * i)) & 0xffu);
  return out;
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7fu) | 0x80u);
  return out + static_cast<char>(value);
}

// Protocol buffer wire types.
enum Wire : std::uint64_t { wire_varint = 0, wire_fixed64 = 1, wire_bytes = 2, wire_fixed32 = 5 };

std::string field_key(std::uint64_t number, Wire wire) {
  return varint((number << 3) | wire);
}

std::string double_field(std::uint64_t number, double value) {
  return field_key(number, wire_fixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}

std::string float_field(std::uint64_t number, float value) {
  return field_key(number, wire_fixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}

std::string bytes_field(std::uint64_t number, std::string_view bytes) {
  return field_key(number, wire_bytes) + varint(bytes.size()) + std::string(bytes);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "host";
  return name.data();
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = crc_table();
  std::uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xffu];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string tf_record(std::string_view payload) {
  const auto length = little_endian(std::uint64_t{payload.size()});
  return length + little_endian(masked_crc32c(length)) + std::string(payload) + little_endian(masked_crc32c(payload));
}

std::string encode_scalar_event(const ScalarEvent& event) {
  // Summary.Value: tag = 1, simple_value = 2; Summary: value = 1; Event: wall_time = 1, step = 2, summary = 5.
  const auto value = bytes_field(1, event.tag) + float_field(2, static_cast<float>(event.value));
  return double_field(1, event.wall_time_s) + field_key(2, wire_varint) +
         varint(static_cast<std::uint64_t>(event.step)) + bytes_field(5, bytes_field(1, value));
}

std::string encode_version_event(double wall_time_s) {
  return double_field(1, wall_time_s) + bytes_field(3, "brain.Event:2");
}

std::string encode_start_event(std::int64_t step, double wall_time_s) {
  // SessionLog: status = 1, START = 1; Event: session_log = 7.
  return double_field(1, wall_time_s) + field_key(2, wire_varint) + varint(static_cast<std::uint64_t>(step)) +
         bytes_field(7, field_key(1, wire_varint) + varint(1));
}

Result<TensorBoardWriter> TensorBoardWriter::create(const std::filesystem::path& folder, double wall_time_s) {
  const auto seconds = static_cast<long long>(std::floor(wall_time_s));
  const auto path = folder / ("events.out.tfevents." + std::to_string(seconds) + '.' + host_name() + '.' +
                              std::to_string(::getpid()));
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return Error{ErrorCode::unavailable, "cannot write " + path.string() + ": " + failed.message()};
  errno = 0;
  TensorBoardWriter writer(path, std::ofstream(path, std::ios::binary | std::ios::app));
  if (!writer.file_) return writer.failure();
  if (auto written = writer.write(encode_version_event(wall_time_s)); !written.ok()) return written.error();
  if (auto flushed = writer.flush(); !flushed.ok()) return flushed.error();
  return writer;
}

TensorBoardWriter::TensorBoardWriter(std::filesystem::path path, std::ofstream file)
    : path_(std::move(path)), file_(std::move(file)) {}

Status TensorBoardWriter::add(const ScalarEvent& event) {
  return write(encode_scalar_event(event));
}

Status TensorBoardWriter::add_start(std::int64_t step, double wall_time_s) {
  return write(encode_start_event(step, wall_time_s));
}

Status TensorBoardWriter::flush() {
  errno = 0;
  file_.flush();
  return file_ ? Status() : failure();
}

Status TensorBoardWriter::write(std::string_view payload) {
  const auto record = tf_record(payload);
  errno = 0;
  file_.write(record.data(), static_cast<std::streamsize>(record.size()));
  return file_ ? Status() : failure();
}

Error TensorBoardWriter::failure() const {
  const std::string reason = errno == 0 ? "write failed" : std::error_code(errno, std::generic_category()).message();
  return {ErrorCode::unavailable, "cannot write " + path_.string() + ": " + reason};
}

}  // namespace maestro
