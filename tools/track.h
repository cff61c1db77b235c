// The command line that all tracks share.
#ifndef TOOLS_TRACK_H_
#define TOOLS_TRACK_H_

namespace tools {

// Parses the flags, runs what they say, and returns the process's exit code.
int TrackMain(const char* track, int argc, char** argv);

}  // namespace tools

#endif  // TOOLS_TRACK_H_
