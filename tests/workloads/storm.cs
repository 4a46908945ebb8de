// Throws as many exceptions as the runtime can, or allocates until a number of allocation events: a
// storm of events for a session.
//
//   storm [--seconds S] [--ticks N] [--heard S]      default: 5 s, none, not waited for
//
// Two threads throw and catch exceptions. With --ticks they stop when the main thread has allocated
// 100 KB N times. Each time is an allocation tick. With --heard they start when a session enables
// the provider `Storm`, which has no events, or after S seconds. Prints a JSON line "ready" with
// the pid at the start, and "done" with the number of exceptions and the CPU time of the process at
// the end.
//
// Uses only C# 7 and mscorlib, as mixed.cs does.
using System;
using System.Diagnostics.Tracing;
using System.Globalization;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

static class Program
{
    static volatile bool stop;

    static int Main(string[] args)
    {
        var seconds = 5.0;
        var ticks = 0L;
        var heard = 0.0;
        for (var i = 0; i < args.Length; i += 2)
        {
            var value = i + 1 < args.Length ? args[i + 1] : "";
            var isSeconds = args[i] == "--seconds" && IsPositive(value, out seconds);
            var isHeard = args[i] == "--heard" && IsPositive(value, out heard);
            var isTicks = args[i] == "--ticks" && long.TryParse(value, out ticks) && ticks >= 0;
            if (!isSeconds && !isTicks && !isHeard)
            {
                Console.Error.WriteLine("usage: storm [--seconds S] [--ticks N] [--heard S]");
                return 2;
            }
        }

        Console.WriteLine("{\"event\":\"ready\",\"pid\":" + GetPid() + "}");
        Wait(heard);
        long thrown = 0;
        var threads = new Thread[2];
        for (var i = 0; i < threads.Length; i++)
        {
            threads[i] = new Thread(() => Interlocked.Add(ref thrown, Throw()));
            threads[i].Start();
        }

        if (ticks == 0)
        {
            Thread.Sleep(TimeSpan.FromSeconds(seconds));
        }

        for (var i = 0L; i < ticks; i++)
        {
            Allocate();
            Allocate();
        }

        stop = true;
        foreach (var thread in threads)
        {
            thread.Join();
        }

        Console.WriteLine("{\"event\":\"done\",\"pid\":" + GetPid() + ",\"thrown\":" + thrown +
            ",\"cpuMs\":" + Clock() / 1000 + "}");
        return 0;
    }

    static bool IsPositive(string text, out double seconds)
    {
        return double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out seconds) && seconds > 0;
    }

    static void Wait(double seconds)
    {
        var start = DateTime.UtcNow;
        using (var source = new Heard())
        {
            while (!source.IsEnabled() && (DateTime.UtcNow - start).TotalSeconds < seconds)
            {
                Thread.Sleep(5);
            }
        }
    }

    [DllImport("libc", EntryPoint = "getpid")]
    static extern int GetPid();

    // CPU time of the process in microseconds.
    [DllImport("libc", EntryPoint = "clock")]
    static extern long Clock();

    // Two arrays are a little more than the size of a tick. Larger ones would be in the large
    // object heap, and cause many collections.
    [MethodImpl(MethodImplOptions.NoInlining)]
    static byte[] Allocate()
    {
        return new byte[51 * 1024];
    }

    static long Throw()
    {
        var count = 0L;
        while (!stop)
        {
            try
            {
                Fail();
            }
            catch (InvalidOperationException)
            {
                count++;
            }
        }

        return count;
    }

    [MethodImpl(MethodImplOptions.NoInlining)]
    static void Fail()
    {
        throw new InvalidOperationException("a storm of exceptions");
    }
}

[EventSource(Name = "Storm")]
sealed class Heard : EventSource
{
}
