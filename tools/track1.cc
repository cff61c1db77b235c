// Trains a 124M-class GPT by a record of the NanoGPT speedrun's track 1.
#include "tools/track.h"

int main(int argc, char** argv) {
  return tools::TrackMain({.name = "track1", .record = "unified_optimizers"}, argc, argv);
}
