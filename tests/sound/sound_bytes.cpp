// SPDX-License-Identifier: Apache-2.0
#include "tests/sound/sound_bytes.hpp"

#include <sndfile.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace maestro {

namespace {

struct Memory {
  std::string bytes;
  std::size_t at = 0;
};

Memory& memory_of(void* user) {
  return *static_cast<Memory*>(user);
}

}  // namespace

std::string sound_bytes(SoundFile kind, std::int64_t rate, std::int64_t channels, const std::vector<float>& samples) {
  constexpr int formats[] = {SF_FORMAT_WAV | SF_FORMAT_PCM_16,   SF_FORMAT_WAV | SF_FORMAT_PCM_24,
                             SF_FORMAT_WAV | SF_FORMAT_FLOAT,    SF_FORMAT_WAV | SF_FORMAT_ULAW,
                             SF_FORMAT_WAV | SF_FORMAT_MS_ADPCM, SF_FORMAT_FLAC | SF_FORMAT_PCM_16};
  SF_VIRTUAL_IO functions{};
  functions.get_filelen = [](void* user) { return static_cast<sf_count_t>(memory_of(user).bytes.size()); };
  functions.seek = [](sf_count_t offset, int whence, void* user) {
    Memory& memory = memory_of(user);
    const std::size_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? memory.at : memory.bytes.size();
    memory.at = base + static_cast<std::size_t>(offset);
    return static_cast<sf_count_t>(memory.at);
  };
  functions.read = [](void* to, sf_count_t count, void* user) {
    Memory& memory = memory_of(user);
    const std::size_t taken = std::min(static_cast<std::size_t>(count), memory.bytes.size() - memory.at);
    std::memcpy(to, memory.bytes.data() + memory.at, taken);
    memory.at += taken;
    return static_cast<sf_count_t>(taken);
  };
  functions.write = [](const void* from, sf_count_t count, void* user) {
    Memory& memory = memory_of(user);
    const auto size = static_cast<std::size_t>(count);
    if (memory.bytes.size() < memory.at + size) memory.bytes.resize(memory.at + size);
    std::memcpy(memory.bytes.data() + memory.at, from, size);
    memory.at += size;
    return count;
  };
  functions.tell = [](void* user) { return static_cast<sf_count_t>(memory_of(user).at); };
  Memory memory;
  SF_INFO info{};
  info.samplerate = static_cast<int>(rate);
  info.channels = static_cast<int>(channels);
  info.format = formats[static_cast<std::size_t>(kind)];
  SNDFILE* file = sf_open_virtual(&functions, SFM_WRITE, &info, &memory);
  if (file == nullptr) throw std::runtime_error(sf_strerror(nullptr));
  sf_writef_float(file, samples.data(), static_cast<sf_count_t>(samples.size()) / channels);
  sf_close(file);
  return memory.bytes;
}

std::vector<float> made_wave(std::int64_t count) {
  std::uint32_t state = 1;
  std::vector<float> samples;
  for (std::int64_t at = 0; at < count; ++at) {
    state = state * 1664525U + 1013904223U;
    const double noise = static_cast<double>(state) / 4294967296.0 - 0.5, time = static_cast<double>(at);
    const double tone = 0.4 * std::sin(0.05 * time) + 0.2 * std::sin(0.9 * time);
    const bool silent = count / 3 < at && at < count / 2;
    samples.push_back(silent ? 0.0F : static_cast<float>(tone + 0.1 * noise));
  }
  return samples;
}

}  // namespace maestro
