// SPDX-License-Identifier: Apache-2.0
#include "sections/state_io.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <system_error>

#include "runtime/checkpoint/model_export.hpp"
#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/nearest_name.hpp"
#include "sections/model_config.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

using Names = std::map<std::string, ConstTensor, std::less<>>;

/// A section and the flat buffer that is read or written.
struct Source {
  Section* section = nullptr;
  ParameterBuffer which = ParameterBuffer::values;
  Tensor flat;

  /// Returns the entries with a part in the buffer: a table that is stepped by rows has only values.
  [[nodiscard]] std::vector<StateEntry> entries() const {
    std::vector<StateEntry> entries = section->state();
    if (which == ParameterBuffer::values) return entries;
    std::erase_if(entries, [](const StateEntry& entry) { return entry.parameter->rule().by_rows(); });
    return entries;
  }
  [[nodiscard]] Tensor part(const Parameter& parameter) const {
    return parameter.rule().by_rows() ? parameter.value() : section->parameters().part(flat, parameter);
  }
};

/// Rows of the stored tensor that a rank holds, before transposing, and their place in its buffer.
struct Piece {
  Tensor held;  // (rows, columns of the rank)
  std::int64_t stored_row = 0;
  std::int64_t stored_column = 0;
};

/// Returns the rows of the full parameter that the entry stores: all, or some.
ParameterSlice::Range rows_of(const StateEntry& entry) {
  return entry.rows == 0 ? ParameterSlice::Range{0, entry.parameter->whole_shape()[0]}
                         : ParameterSlice::Range{entry.first_row, entry.rows};
}

/// Returns the full tensor's shape in the order of the parameter; a vector stays a vector.
Shape untransposed_shape(const StateEntry& entry) {
  const Shape& whole = entry.parameter->whole_shape();
  if (entry.vector) return Shape{whole.elements() / whole[0]};
  if (entry.rows == 0) return whole;
  return whole.rank() == 1 ? Shape{entry.rows} : Shape{entry.rows, whole.elements() / whole[0]};
}

/// Returns the rows of a matrix in the entry: a group, or all.
std::int64_t matrix_rows(const StateEntry& entry) {
  return rows_of(entry).count / (entry.grouped ? entry.parameter->whole_groups() : 1);
}

Shape stored_shape(const StateEntry& entry) {
  const Shape shape = untransposed_shape(entry);
  if (entry.grouped) {
    const std::int64_t rows = matrix_rows(entry), columns = shape.elements() / shape[0];
    const std::int64_t groups = entry.parameter->whole_groups();
    return entry.transposed ? Shape{groups, columns, rows} : Shape{groups, rows, columns};
  }
  if (entry.offsets > 0) return Shape{shape[0], shape.elements() / shape[0] / entry.offsets, entry.offsets};
  return entry.transposed ? Shape{shape.columns(), shape.rows()} : shape;
}

/// Consecutive rows of the parameter's part on this rank.
struct HeldRows {
  Tensor values;
  std::int64_t first = 0;
};

/// Returns the parts of the entry's tensor among `held`: where the rank's slice and the entry's rows overlap, each in
/// one matrix.
std::vector<Piece> pieces_of(const HeldRows& held, const StateEntry& entry) {
  const Parameter& parameter = *entry.parameter;
  const std::int64_t columns = parameter.shape().elements() / parameter.shape()[0];
  const std::int64_t rows = held.values.elements() / columns;
  const Tensor values = held.values.reshaped(Shape{rows, columns});
  const ParameterSlice::Range wanted = rows_of(entry);
  std::vector<Piece> pieces;
  for (const Parameter::Run& run : parameter.runs()) {
    const std::int64_t skipped = std::max<std::int64_t>(held.first - run.row, 0);
    const std::int64_t kept = std::min(run.rows, held.first + rows - run.row);
    const std::int64_t first = std::max(run.whole_row + skipped, wanted.first);
    const std::int64_t end = std::min(run.whole_row + kept, wanted.first + wanted.count);
    const std::int64_t height = matrix_rows(entry);
    for (std::int64_t next = first; next < end;) {
      const std::int64_t stored = next - wanted.first;
      const std::int64_t count = std::min(end - next, height - stored % height);
      const std::int64_t row = run.row + next - run.whole_row - held.first;
      pieces.push_back({values.row_slice(row, count), stored, parameter.columns().first});
      next += count;
    }
  }
  return pieces;
}

/// A matrix by strides, in elements.
template <class Value>
struct View {
  Value* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

/// Returns the place of `piece` in the entry's full tensor, whose first element is `stored`.
template <class Value>
View<Value> place_of(const Piece& piece, const StateEntry& entry, Value* stored) {
  const Shape shape = untransposed_shape(entry);
  const std::int64_t height = matrix_rows(entry), columns = shape.elements() / rows_of(entry).count;
  const std::int64_t matrix = piece.stored_row / height;
  View<Value> view{stored + matrix * height * columns, columns, 1};
  if (entry.transposed) view = {view.data, 1, height};
  view.data += piece.stored_row % height * view.row_stride + piece.stored_column * view.column_stride;
  return view;
}

template <class Value>
View<Value> view_of(const Piece& piece) {
  return {piece.held.data<Value>(), piece.held.columns(), 1};
}

template <class From, class To>
void copy_values(View<From> from, View<To> to, std::int64_t rows, std::int64_t columns) {
  const auto value_of = [](From value) { return static_cast<To>(static_cast<float>(value)); };
  if (from.column_stride == 1 && to.column_stride == 1) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const From* source = from.data + row * from.row_stride;
      std::transform(source, source + columns, to.data + row * to.row_stride, value_of);
    }
    return;
  }
  constexpr std::int64_t tile = 32;  // both sides of a tile stay in the first-level cache
  for (std::int64_t row0 = 0; row0 < rows; row0 += tile) {
    for (std::int64_t column0 = 0; column0 < columns; column0 += tile) {
      for (std::int64_t row = row0; row < std::min(rows, row0 + tile); ++row) {
        for (std::int64_t column = column0; column < std::min(columns, column0 + tile); ++column) {
          to.data[row * to.row_stride + column * to.column_stride] =
              value_of(from.data[row * from.row_stride + column * from.column_stride]);
        }
      }
    }
  }
}

/// Calls copy(held, stored, rows, columns) for the piece; for the channels of each offset if it is of a kernel.
template <class Held, class Stored, class Copy>
void copy_parts(const Piece& piece, const StateEntry& entry, View<Held> held, View<Stored> stored, const Copy& copy) {
  if (entry.offsets == 0) return copy(held, stored, piece.held.rows(), piece.held.columns());
  const std::int64_t channels = piece.held.columns() / entry.offsets;
  stored.column_stride = entry.offsets;
  for (std::int64_t offset = 0; offset < entry.offsets; ++offset) {
    copy(held, stored, piece.held.rows(), channels);
    held.data += channels;
    ++stored.data;
  }
}

/// Calls body(Value()), Value being float or bfloat16.
template <class Body>
void with_value_of(const ConstTensor& tensor, Body body) {
  if (tensor.dtype() == DType::bf16) {
    body(bfloat16());
  } else {
    body(float());
  }
}

/// Copies the piece to its place in `stored`, the entry's full tensor.
void copy_out(const Piece& piece, const StateEntry& entry, const Tensor& stored) {
  with_value_of(piece.held, [&]<class Held>(Held) {
    with_value_of(stored, [&]<class Stored>(Stored) {
      copy_parts(piece, entry, view_of<Held>(piece), place_of(piece, entry, stored.data<Stored>()),
                 [](auto held, auto whole, std::int64_t rows, std::int64_t columns) {
                   copy_values(held, whole, rows, columns);
                 });
    });
  });
}
/// Copies the piece from its place in `stored`.
void copy_in(const Piece& piece, const StateEntry& entry, const ConstTensor& stored) {
  with_value_of(piece.held, [&]<class Held>(Held) {
    with_value_of(stored, [&]<class Stored>(Stored) {
      copy_parts(piece, entry, view_of<Held>(piece), place_of(piece, entry, stored.data<Stored>()),
                 [](auto held, auto whole, std::int64_t rows, std::int64_t columns) {
                   copy_values(whole, held, rows, columns);
                 });
    });
  });
}

/// A flat buffer in CPU memory: the buffer itself, or a copy of it if it is in device memory.
class HostView {
 public:
  HostView(const Parameters& parameters, ParameterBuffer which)
      : memory_(&parameters.memory()), flat_(parameters.buffer(which)) {
    if (memory_->host() || !flat_.defined()) return;
    copy_ = AlignedMemory(flat_.bytes());
    memory_->read(copy_.data(), flat_.raw(), flat_.bytes());
  }
  [[nodiscard]] Tensor values() const {
    return copy_.size() == 0 ? flat_ : Tensor(copy_.data(), flat_.dtype(), flat_.shape());
  }
  /// Copies changed values() back to the buffer.
  void put_back() const {
    if (copy_.size() > 0) memory_->write(flat_.raw(), copy_.data(), flat_.bytes());
  }

 private:
  MemorySpace* memory_;
  Tensor flat_;
  AlignedMemory copy_;
};

Status check_buffer(const Source& source) {
  Parameters& parameters = source.section->parameters();
  if (parameters.optimizer_sharded() && source.flat.elements() != parameters.elements()) {
    return Error{ErrorCode::invalid_argument, "replicas share this state; it goes in and out by way of the gradients"};
  }
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.value().defined()) continue;
    return Error{ErrorCode::invalid_argument,
                 "'" + parameter.name() + "' was dropped when the section was frozen; store it before that"};
  }
  if (parameters.elements() == 0 && (source.which == ParameterBuffer::values || parameters.trained())) return {};
  if (!source.flat.defined() || source.flat.elements() != parameters.elements()) {
    return Error{ErrorCode::invalid_argument, "the section has no such state: it is not trained"};
  }
  return {};
}

Error missing(const std::string& file, const std::string& name, const Names& stored) {
  std::vector<std::string> names;
  for (const auto& [stored_name, tensor] : stored) names.push_back(stored_name);
  const auto nearest = nearest_name(name, names);
  return {ErrorCode::not_found, file + ": tensor '" + name + "' is missing" +
                                    (nearest ? "; the nearest is '" + *nearest + "'" : "") +
                                    way_to_whole_model(std::filesystem::path(file).parent_path())};
}

Status check_entry(const StateEntry& entry, const std::string& name, const Names& stored, const std::string& file) {
  const auto found = stored.find(name);
  if (found == stored.end()) return missing(file, name, stored);
  const ConstTensor& tensor = found->second;
  const Shape expected = stored_shape(entry);
  if (tensor.shape() != expected) {
    return Error{ErrorCode::invalid_argument, file + ": tensor '" + name + "' has shape " + tensor.shape().to_string() +
                                                  ", expected " + expected.to_string()};
  }
  if (tensor.dtype() != DType::f32 && tensor.dtype() != DType::bf16) {
    return Error{ErrorCode::invalid_argument, file + ": tensor '" + name + "' is " +
                                                  std::string(name_of(tensor.dtype())) + ", expected F32, BF16 or F16"};
  }
  return {};
}

Status check_unexpected(const Section& section, const std::vector<StateEntry>& entries, const Names& stored,
                        const std::string& file, std::string_view prefix) {
  std::vector<std::string> expected;
  for (const StateEntry& entry : entries) expected.push_back(std::string(prefix) + entry.name);
  std::vector<std::string> sorted = expected;
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [name, tensor] : stored) {
    if (std::binary_search(sorted.begin(), sorted.end(), name)) continue;
    const bool ours = name.starts_with(prefix);
    if (ours && section.ignores(std::string_view(name).substr(prefix.size()))) continue;
    const auto nearest = nearest_name(name, expected);
    return Error{ErrorCode::invalid_argument, file + ": tensor '" + name + "' is unexpected" +
                                                  (nearest ? "; the nearest known is '" + *nearest + "'" : "")};
  }
  return {};
}

/// Checks all tensors before any value is read (IO-2).
Status check_all(const Section& section, const std::vector<StateEntry>& entries, const Names& stored,
                 const std::string& file, std::string_view prefix) {
  for (const StateEntry& entry : entries) {
    if (const Status fits = check_entry(entry, std::string(prefix) + entry.name, stored, file); !fits) return fits;
  }
  return check_unexpected(section, entries, stored, file, prefix);
}

/// Copies the stored tensor's pieces into `held`, rows of the entry's parameter.
void take(const ConstTensor& from, const StateEntry& entry, const HeldRows& held) {
  for (const Piece& piece : pieces_of(held, entry)) copy_in(piece, entry, from);
}

/// Throws JobError for a block that is not numbers.
void check_numbers(const Mxfp4Rows& rows, const StateEntry& entry, const std::string& file) {
  if (rows.numbers()) return;
  throw JobError(file + ": tensor '" + entry.name + "_scales' has the scale 255, with which a block is NaN",
                 ErrorCode::corrupt);
}

/// Widens the stored rows' pieces into `held`. Throws as above.
void widen(const Mxfp4Rows& from, const StateEntry& entry, const HeldRows& held, const std::string& file) {
  for (const Piece& piece : pieces_of(held, entry)) {
    const Mxfp4Rows rows = from.row_slice(piece.stored_row, piece.held.rows());
    check_numbers(rows, entry, file);
    const auto columns = static_cast<std::size_t>(piece.held.columns());
    float* to = piece.held.data<float>();
    for (std::int64_t row = 0; row < rows.rows; ++row, to += columns) {
      rows.widen(row, piece.stored_column, {to, columns});
    }
  }
}

/// Copies the blocks of the parameter's rows from `first` on. Throws as widen().
void copy_blocks(const Mxfp4Rows& from, const Parameter& parameter, std::int64_t first, Mxfp4Room& to,
                 const StateEntry& entry, const std::string& file) {
  const std::int64_t skipped = parameter.columns().first / mxfp4_block, count = to.columns / mxfp4_block;
  for (const Parameter::Run& run : parameter.runs()) {
    const std::int64_t end = std::min(run.row + run.rows, first + to.rows);
    for (std::int64_t row = std::max(run.row, first); row < end; ++row) {
      const Mxfp4Rows own = from.row_slice(run.whole_row + row - run.row, 1);
      check_numbers(own, entry, file);
      const std::int64_t at = (row - first) * count;
      std::copy_n(own.blocks + skipped * mxfp4_bytes, count * mxfp4_bytes, to.blocks.data() + at * mxfp4_bytes);
      std::copy_n(own.scales + skipped, count, to.scales.data() + at);
    }
  }
}

Status make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return {};
  return Error{ErrorCode::unavailable, folder.string() + ": cannot be created: " + error.message()};
}

/// A snapshot whose tensors are not filled yet.
struct Room {
  TensorSnapshot snapshot;
  std::vector<Tensor> tensors;  // those of `snapshot`
};
/// Returns uninitialised memory for copies of the full tensors.
Room room_for(const std::vector<StateEntry>& entries, std::string_view prefix, ExportedAs as) {
  constexpr std::size_t alignment = 64;  // each copy starts on a cache line
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
  for (const StateEntry& entry : entries) {
    offsets.push_back(bytes);
    const std::size_t own = static_cast<std::size_t>(stored_shape(entry).elements()) * size_of(as.dtype);
    bytes += (own + alignment - 1) / alignment * alignment;
  }
  Room room;
  TensorSnapshot& snapshot = room.snapshot;
  snapshot.memory = as.reused.size() >= bytes ? std::move(as.reused) : AlignedMemory(bytes);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    room.tensors.emplace_back(snapshot.memory.data() + offsets[i], as.dtype, stored_shape(entries[i]));
    snapshot.tensors.push_back({std::string(prefix) + entries[i].name, room.tensors.back()});
  }
  return room;
}

/// Copies the rank's pieces into the full tensor; returns the number of elements copied.
std::int64_t collect(const Source& rank, const StateEntry& entry, const Tensor& whole) {
  std::int64_t copied = 0;
  for (const Piece& piece : pieces_of({rank.part(*entry.parameter)}, entry)) {
    copy_out(piece, entry, whole);
    copied += piece.held.elements();
  }
  return copied;
}

Result<TensorSnapshot> merged(std::span<const Source> ranks, std::string_view prefix, ExportedAs as) {
  std::vector<std::vector<StateEntry>> entries;
  for (const Source& rank : ranks) {
    if (const Status usable = check_buffer(rank); !usable) return usable.error();
    entries.push_back(rank.entries());
    std::erase_if(entries.back(), [](const StateEntry& entry) { return entry.copy; });
  }
  Room room = room_for(entries.front(), prefix, std::move(as));
  for (std::size_t i = 0; i < room.tensors.size(); ++i) {
    const Tensor& whole = room.tensors[i];
    std::int64_t copied = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const Parameter& own = *entries[rank][i].parameter;
      const auto same = [&](const auto& other) { return other[i].parameter->same_part(own); };
      const bool held_before = std::any_of(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(rank), same);
      if (!held_before) copied += collect(ranks[rank], entries[rank][i], whole);
    }
    if (copied == whole.elements()) continue;
    return Error{ErrorCode::invalid_argument, "'" + room.snapshot.tensors[i].name + "' is held in parts, " +
                                                  std::to_string(copied) + " of " + std::to_string(whole.elements()) +
                                                  " elements here; store all tensor ranks together"};
  }
  return std::move(room.snapshot);
}

Status write_weights(std::span<Section* const> ranks, const std::filesystem::path& folder) {
  auto snapshot = export_tensors(ranks, ParameterBuffer::values);
  if (!snapshot) return Error{snapshot.error().code, folder.string() + ": " + snapshot.error().message};
  if (const Status made = make_folder(folder); !made) return made;
  std::vector<NamedTensor> tensors = std::move(snapshot->tensors);
  const auto memory = std::ranges::stable_partition(
      tensors, [](const NamedTensor& named) { return !named.name.starts_with(memory_prefix); });
  const std::vector<NamedTensor> of_memory(memory.begin(), memory.end());
  tensors.erase(memory.begin(), memory.end());
  // Readers of the Hugging Face library look for this mark.
  const auto weights = write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
  if (!weights) return weights.error();
  if (!of_memory.empty()) {
    const auto written = write_safetensors(folder / memory_file, of_memory, {{"format", "pt"}});
    if (!written) return written.error();
  }
  const auto config = write_file(folder / "config.json", ranks.front()->config_json());
  return config ? Status() : Status(config.error());
}

}  // namespace

Result<TensorSnapshot> export_tensors(Section& section, ParameterBuffer which, std::string_view prefix) {
  Section* const alone[] = {&section};
  return export_tensors(alone, which, prefix);
}

Result<TensorSnapshot> export_tensors(std::span<Section* const> sections, ParameterBuffer which,
                                      std::string_view prefix, ExportedAs as) {
  std::deque<HostView> views;
  std::vector<Source> ranks;
  for (Section* section : sections) {
    const HostView& view = views.emplace_back(section->parameters(), which);
    ranks.push_back({section, which, view.values()});
  }
  return merged(ranks, prefix, std::move(as));
}

Status import_tensors(Section& section, ParameterBuffer which, std::span<const NamedTensor> tensors,
                      const std::string& file, std::string_view prefix) {
  const HostView view(section.parameters(), which);
  const Source into{&section, which, view.values()};
  if (const Status usable = check_buffer(into); !usable) {
    return Error{usable.error().code, file + ": " + usable.error().message};
  }
  Names stored;
  for (const NamedTensor& tensor : tensors) stored.emplace(tensor.name, tensor.tensor);
  const std::vector<StateEntry> entries = into.entries();
  if (const Status fits = check_all(section, entries, stored, file, prefix); !fits) return fits;
  for (const StateEntry& entry : entries) {
    take(stored.find(std::string(prefix) + entry.name)->second, entry, {into.part(*entry.parameter)});
  }
  view.put_back();
  section.parameters().values_changed();
  return {};
}

Status save_weights(Section& section, const std::filesystem::path& folder) {
  Section* const alone[] = {&section};
  return write_weights(alone, folder);
}

Status save_weights(std::span<Section* const> ranks, const std::filesystem::path& folder) {
  return write_weights(ranks, folder);
}

Status load_weights(Section& section, const std::filesystem::path& folder) {
  if (const Status same = check_same_model(section.config_json(), folder); !same) return same;
  const auto stored = WeightsFolder::open(folder, part_in_folder(section.config_json(), folder));
  if (!stored) return stored.error();
  auto [parameters, entries] = section.weights();
  const auto of_memory = [](const std::string& name) { return name.starts_with(memory_prefix); };
  if (parameters->trained() && std::ranges::none_of(stored->names(), of_memory)) {
    std::erase_if(entries, [&](const StateEntry& entry) { return of_memory(entry.name); });  // begins at random
  }
  std::map<Parameter*, std::vector<const StateEntry*>> entries_of;
  Names described;
  for (const std::string& name : stored->names()) {
    // An ignored tensor may be of a dtype that cannot be read, such as boolean masks.
    if (section.ignores(name) && std::ranges::find(entries, name, &StateEntry::name) == entries.end()) continue;
    const auto tensor = stored->described(name);
    if (!tensor) return tensor.error();
    described.emplace(name, *tensor);
  }
  if (const Status fits = check_all(section, entries, described, stored->label(), ""); !fits) return fits;
  for (const StateEntry& entry : entries) entries_of[entry.parameter].push_back(&entry);
  for (Parameter& parameter : parameters->all()) {
    const std::vector<const StateEntry*>& own = entries_of[&parameter];
    if (own.empty() && of_memory(parameter.name())) {
      if (parameters->values_later()) parameters->initialise(parameter);
      continue;
    }
    if (own.size() == 1 && parameters->takes_blocks(parameter)) {
      if (const auto blocks = stored->blocks(own.front()->name).value_or_throw()) {
        parameters->load_blocks(parameter, [&](Mxfp4Room& room, std::int64_t first) {
          copy_blocks(*blocks, parameter, first, room, *own.front(), stored->label());
          stored->release(own.front()->name);
        });
        continue;
      }
    }
    parameters->load(parameter, [&](std::span<float> values, std::int64_t first) {
      // Rows without a stored tensor, such as a bias that the model lacks.
      if (parameters->values_later()) std::ranges::fill(values, 0.0F);
      const HeldRows held{Tensor(values.data(), DType::f32, Shape{std::ssize(values)}), first};
      for (const StateEntry* entry : entries_of[&parameter]) {
        if (pieces_of(held, *entry).empty()) continue;
        if (const auto blocks = stored->blocks(entry->name).value_or_throw()) {
          widen(*blocks, *entry, held, stored->label());
        } else {
          take(stored->tensor(entry->name).value_or_throw(), *entry, held);
        }
        stored->release(entry->name);
      }
    });
  }
  return {};
}

}  // namespace maestro
