// Waits for a line on standard input, then allocates and throws until standard input ends.
//
//   idle
//
// Prints a JSON line "ready" at the start, and "done" with the number of exceptions at the end.
//
// Uses only C# 7 and mscorlib, so that Debian's mcs compiles it and .NET Core 3.1 and later run it.
using System;
using System.Threading;

static class Program
{
    static volatile bool ended;
    static byte[] last;

    static int Main()
    {
        Console.WriteLine("{\"event\":\"ready\"}");
        ended = Console.ReadLine() == null;
        if (!ended)
        {
            new Thread(WaitForEnd) { IsBackground = true }.Start();
        }

        long thrown = 0;
        while (!ended)
        {
            var start = Environment.TickCount;
            while (unchecked(Environment.TickCount - start) < 10)
            {
            }

            for (var i = 0; i < 100; i++)
            {
                last = new byte[1000];
            }

            try
            {
                thrown++;
                throw new InvalidOperationException("on purpose");
            }
            catch (InvalidOperationException)
            {
            }
        }

        Console.WriteLine("{\"event\":\"done\",\"thrown\":" + thrown + "}");
        return 0;
    }

    static void WaitForEnd()
    {
        while (Console.ReadLine() != null)
        {
        }

        ended = true;
    }
}
