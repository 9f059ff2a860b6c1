// SPDX-License-Identifier: Apache-2.0
// Samples by libsndfile, which reads the file through functions on the bytes in memory.
#include "runtime/sound/sound_codec.hpp"

#include <sndfile.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

namespace maestro {

namespace {

/// A file's bytes with a position.
struct Bytes {
  std::string_view all;
  sf_count_t at = 0;
};

sf_count_t length_of(void* user) {
  return std::ssize(static_cast<Bytes*>(user)->all);
}

sf_count_t seek_in(sf_count_t offset, int whence, void* user) {
  auto& bytes = *static_cast<Bytes*>(user);
  const sf_count_t size = std::ssize(bytes.all);
  const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? bytes.at : size;
  bytes.at = std::clamp<sf_count_t>(base + offset, 0, size);
  return bytes.at;
}

sf_count_t read_from(void* to, sf_count_t count, void* user) {
  auto& bytes = *static_cast<Bytes*>(user);
  const sf_count_t taken = std::clamp<sf_count_t>(count, 0, std::ssize(bytes.all) - bytes.at);
  std::memcpy(to, bytes.all.data() + bytes.at, static_cast<std::size_t>(taken));
  bytes.at += taken;
  return taken;
}

sf_count_t write_nothing(const void* /*from*/, sf_count_t /*count*/, void* /*user*/) {
  return 0;
}

sf_count_t tell_in(void* user) {
  return static_cast<Bytes*>(user)->at;
}

Error broken(SNDFILE* file) {
  return {ErrorCode::corrupt, std::string("broken: libsndfile: ") + sf_strerror(file)};
}

}  // namespace

Result<std::vector<float>> decode_samples(std::string_view bytes, const SoundFormat& format) {
  SF_VIRTUAL_IO functions{length_of, seek_in, read_from, write_nothing, tell_in};
  Bytes source{bytes};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(sf_open_virtual(&functions, SFM_READ, &info, &source),
                                                         sf_close);
  if (!file) return broken(nullptr);
  if (info.samplerate != format.rate || info.channels != format.channels) {
    return Error{ErrorCode::corrupt, "broken: libsndfile finds another rate or number of channels than the header"};
  }
  constexpr std::int64_t block = 1 << 14;
  const auto channels = static_cast<std::size_t>(format.channels);
  std::vector<float> read(block * channels), samples;
  for (sf_count_t got = 0; (got = sf_readf_float(file.get(), read.data(), block)) > 0;) {
    for (std::size_t at = 0; at < static_cast<std::size_t>(got) * channels; at += channels) {
      float sum = read[at];
      for (std::size_t channel = 1; channel < channels; ++channel) sum += read[at + channel];
      samples.push_back(channels == 1 ? sum : sum / static_cast<float>(channels));
    }
  }
  if (sf_error(file.get()) != SF_ERR_NO_ERROR) return broken(file.get());
  return samples;
}

}  // namespace maestro
